"""A launch script as data: its variables, the commands that it starts, and which launcher starts them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from .shell_expand import Variables, is_known

NOTHING = {
    "cd", "mkdir", "set", "unset", "ulimit", "module", "conda", "pip", "wait", "sleep", "date", "ls",
    "cp", "rm",
    "mv", "touch", "chmod", "nvidia-smi", "git", "printf", "trap", "shopt", "exit", "return", "break",
    "continue",
    "true", "false", ":", "read", "wget", "tar", "kill", "pkill", "hostname", "which", "command", "type",
    "local",
}  # fmt: skip
"""Commands that start nothing and set nothing that a training takes."""


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command as a shell would start it: its words, and the line that it begins on. ``environment`` is that
    of a script which another one starts; None: what is set where all ends."""

    words: tuple[str, ...]
    line: int
    environment: Mapping[str, str] | None = None


@dataclass(kw_only=True)
class Script:
    """What a script says: its variables, the commands that it starts, files that it writes, its #SBATCH
    lines."""

    variables: Variables
    commands: list[Command] = field(default_factory=list)
    documents: dict[str, str] = field(default_factory=dict)
    sbatch: dict[str, str] = field(default_factory=dict)
    sourced: list[str] = field(default_factory=list)
    started: list[str] = field(default_factory=list)
    """Scripts that it starts and that nobody gave."""

    @property
    def launch(self) -> Command | None:
        """The command with the most options: the one that trains."""
        counted = [(sum(word.startswith("--") for word in one.words), one) for one in self.commands]
        best = max((count for count, _ in counted), default=0)
        return next((one for count, one in counted if count == best), None) if best else None

    @property
    def trainings(self) -> tuple[int, ...]:
        """Lines of all commands that start what ``launch`` starts, with other words."""
        launch = self.launch
        program = [word for word in launch.words if word.endswith((".py", ".sh"))][:1] if launch else []
        alike = {one.words: one.line for one in self.commands if program and program[0] in one.words}
        return tuple(alike.values())

    def environment(self) -> dict[str, str]:
        """Variables whose values are known and of one word, where the command that trains is started."""
        if self.launch is not None and self.launch.environment is not None:
            return dict(self.launch.environment)
        return texts_of(self.variables)


def texts_of(variables: Variables) -> dict[str, str]:
    """Variables whose values are known, an array by its first element."""
    texts = {name: variables.text(name) for name in variables.found}
    return {name: text for name, text in texts.items() if text is not None and is_known(text)}


_OF_SLURM = {
    "SLURM_NNODES": ("nodes", "N"),
    "SLURM_JOB_NUM_NODES": ("nodes", "N"),
    "SLURM_NTASKS": ("ntasks", "n"),
    "SLURM_NTASKS_PER_NODE": ("ntasks-per-node",),
    "SLURM_CPUS_PER_TASK": ("cpus-per-task", "c"),
    "SLURM_GPUS": ("gpus", "G"),
    "SLURM_GPUS_PER_NODE": ("gpus-per-node",),
    "SLURM_GPUS_ON_NODE": ("gpus-per-node", "gres"),
}
"""The options of sbatch that each variable of a job repeats.

Source: slurm.schedmd.com sbatch.html, "Output environment variables".
"""


def slurm_variables(sbatch: Mapping[str, str]) -> dict[str, str]:
    """What Slurm sets in a job's environment by the numbers of its #SBATCH lines."""
    told = {
        variable: found[1]
        for variable, names in _OF_SLURM.items()
        for name in names
        if (found := re.search(r"(?:\A|:)([0-9]{1,9})\Z", sbatch.get(name, "")))
    }
    hosts, each = told.get("SLURM_NNODES"), told.get("SLURM_NTASKS_PER_NODE")
    if hosts and each:
        told.setdefault("SLURM_NTASKS", str(int(hosts) * int(each)))
    return told
