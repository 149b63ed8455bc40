"""Arguments of a command as settings by name, and what its launcher says of hosts and GPUs.

Knows how argparse cuts a list and the options of torchrun, deepspeed, srun, mpirun and accelerate launch;
does not know what a training script's options mean.

Sources: docs.pytorch.org elastic/run.html; deepspeed launcher/runner.py; slurm.schedmd.com srun.html,
sbatch.html.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .leftovers import is_harmless
from .plain_names import plain_name
from .settings import UNKNOWN, Setting
from .shell import read_script
from .shell_expand import Variables, unknown
from .shell_script import Script
from .shell_words import ShellError
from .sources import SourceFile

_NEGATIVE = re.compile(r"-(\d|\.\d)")

PER_NODE = (
    "nproc_per_node",
    "nproc-per-node",
    "num_gpus",
    "ntasks_per_node",
    "gpus_per_node",
    "gpus_per_task",
)
NODES = ("nnodes", "num_nodes", "nodes")
_LAUNCHERS = ("deepspeed", "accelerate", "torchrun", "mpirun", "srun")
_SIZE = re.compile(r"0*[1-9][0-9]{0,8}")
_SCRIPT = re.compile(r"[^=]*\.py\Z")


@dataclass(frozen=True, kw_only=True)
class Launch:
    """What would be started: the options of the training script, those of its launcher, and the environment.

    ``nodes``, ``per_node`` and ``world`` are texts, open where the script leaves them open; None: not said.
    ``documents`` are files that the shell script writes before.
    """

    options: dict[str, Setting]
    header: dict[str, Setting]
    environment: dict[str, Setting]
    launcher: str = ""
    nodes: Setting | None = None
    per_node: Setting | None = None
    world: Setting | None = None
    documents: dict[str, str] = field(default_factory=dict)
    sourced: tuple[str, ...] = ()
    repeated: tuple[Setting, ...] = ()
    """Options that stand twice, with other values; the last one is in ``options``."""
    words: tuple[str, ...] = ()
    """All that follows the training script."""
    segment: Setting | None = None
    """Hosts that Slurm is to take together out of one rack."""
    started: tuple[str, ...] = ()
    """Scripts that are started, and that nobody gave."""
    trainings: tuple[int, ...] = ()
    """Lines of the commands that train, where one alone should."""
    reads_documents: bool = False
    """Whether the options of ``documents`` are among those of the launch."""


def launch_of(
    file: SourceFile,
    given: Mapping[str, str],
    others: Mapping[str, str] | None,
    documents: Mapping[str, Mapping[str, Any]] | None,
) -> Launch:
    """The launch that a shell script or a list of arguments says.

    ``others`` are scripts that it may source or start, ``documents`` YAML files that it may read, by name.

    Raises:
        ValueError: the script cannot be read, or starts nothing with options.
    """
    if file.kind == "arguments":
        variables = Variables(given=given)
        return _launch(file, [_open(word, variables) for word in file.words], dict(file.environment), None)
    try:
        script = read_script(file.text, given, others, documents)
    except ShellError as error:
        raise ValueError(f"{file.name}:{error.line}: {error.message}") from None
    command = script.launch
    if command is None:
        raise ValueError(
            f"{file.name}: no command in it has options, so it starts no training; give its file too"
        )
    return _launch(file, list(command.words), script.environment(), script)


def _open(word: str, variables: Variables) -> str:
    """A word of a list with ``$X`` put in from what is given; what nobody gives stays open under its name."""
    if "$" not in word or word.startswith("$("):
        return word
    return variables.one('"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"')


def _launch(file: SourceFile, words: list[str], environment: dict[str, str], script: Script | None) -> Launch:
    """What the command of these words would start; ``script``: the shell script that it stands in."""
    words, assigned = _without_assignments(words)
    environment |= assigned
    place = next((i for i, word in enumerate(words) if _SCRIPT.match(word)), None)
    head = words[: place or 0]
    if place is None and script is not None:
        place = next((i for i, word in enumerate(words) if word.startswith("--")), 0) - 1
    tail = words if place is None else words[place + 1 :]
    options, repeated = options_of(tail, file)
    header, _ = options_of(head, file)
    if place is None or script is None:
        header = {**options, **header}
    launcher = next((one for one in _LAUNCHERS if one in head), "")
    sbatch = script.sbatch if script else {}
    world = _first(header, ("np", "n", "ntasks", "num_processes"))
    nodes, per_node = _hosts(header, launcher, sbatch, world, file)
    found = Launch(
        options=options,
        header=header,
        environment=environment_of(file, environment),
        launcher=launcher,
        nodes=nodes,
        per_node=per_node,
        world=world,
        repeated=repeated,
        words=tuple(tail),
        segment=_first(header, ("segment",)) or _sbatch(sbatch, ("segment",), file),
    )
    if script is None:
        return found
    return replace(
        found,
        documents=dict(script.documents),
        sourced=tuple(script.sourced),
        started=tuple(script.started),
        trainings=script.trainings,
        reads_documents=bool(script.variables.read),
    )


def _without_assignments(words: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The words behind ``NAME=value`` at the front, and the variables that these set."""
    count = next((i for i, word in enumerate(words) if not re.match(r"[A-Za-z_]\w*=", word)), len(words))
    pairs = (word.partition("=") for word in words[:count])
    return list(words[count:]), {name: value for name, _, value in pairs}


def _hosts(
    header: Mapping[str, Setting],
    launcher: str,
    sbatch: Mapping[str, str],
    world: Setting | None,
    file: SourceFile,
) -> tuple[Setting | None, Setting | None]:
    """Hosts, and ranks of each, by the launcher's options, then by Slurm's header; None: not said."""
    nodes = _first(header, NODES) or _sbatch(sbatch, ("nodes", "N"), file)
    if nodes is None and launcher == "torchrun" and not any(plain_name(one) in header for one in NODES):
        nodes = Setting(value="1", file="torchrun", name="its default of --nnodes")
    per_node = _first(header, PER_NODE) or _of_slurm(sbatch, file)
    if nodes is None and per_node is None and world is not None:
        return _hosts_of_mpi(header, world)
    return nodes, per_node


def _hosts_of_mpi(header: Mapping[str, Setting], world: Setting) -> tuple[Setting | None, Setting | None]:
    """Hosts, and ranks of each, by ``mpiexec -n 64 -ppn 4``; None where it says no ranks of a host."""
    each = _first(header, ("ppn", "npernode"))
    sizes = [int(text) for one in (world, each) if one and _SIZE.fullmatch(text := str(one.value))]
    if each is None or len(sizes) < 2 or sizes[0] % sizes[1]:
        return None, None
    hosts, name = sizes[0] // sizes[1], f"{world.name} {world.value} over {each.name}"
    return Setting(value=str(hosts), file=world.file, name=name, line=world.line), each


def environment_of(file: SourceFile, environment: Mapping[str, str]) -> dict[str, Setting]:
    """Variables of the environment with the line where the file first names each."""
    return {
        name: Setting(value=value, file=file.name, name=name, line=file.line_of(name))
        for name, value in environment.items()
    }


def options_of(words: Sequence[str], file: SourceFile) -> tuple[dict[str, Setting], tuple[Setting, ...]]:
    """Options by plain name, and those that stand twice with other values."""
    found: dict[str, Setting] = {}
    repeated: list[Setting] = []
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if not word.startswith("-") or _NEGATIVE.match(word) or word.strip("-") == "":
            continue
        name, equals, value = word.partition("=")
        values = [value] if equals else []
        while (
            not equals and at < len(words) and (not words[at].startswith("-") or _NEGATIVE.match(words[at]))
        ):
            values.append(words[at])
            at += 1
        held = True if not values else values[0] if len(values) == 1 else values
        if name in ("-N", "-np", "-n"):
            name = {"-N": "--nodes"}.get(name, name)
            held = values[0] if values else True
        if isinstance(held, str) and held.strip("\"'") == "$":
            held = unknown(plain_name(name))  # an expression that whoever made the list could not read
        setting = Setting(value=held, file=file.name, name=name, line=file.line_of(name))
        before = found.get(plain_name(name))
        if before is not None and True in (before.value, held) and before.value != held:
            setting = before if held is True else setting
        elif before is not None and before.value != held:
            repeated.append(setting)
        found[plain_name(name)] = setting
    return found, tuple(repeated)


def doubtful(launch: Launch) -> Iterator[Setting]:
    """Options that stand twice with other values, and matter: a list of one run has none."""
    return (one for one in launch.repeated if not is_harmless(plain_name(one.name)))


def _first(options: Mapping[str, Setting], names: Sequence[str]) -> Setting | None:
    for name in names:
        found = options.get(plain_name(name))
        if found is None or found.value is True:
            continue
        if isinstance(found.value, list):
            found = Setting(value=found.value[0], file=found.file, name=found.name, line=found.line)
        if isinstance(found.value, str) and re.match(r"\$|`|\d+:\d+|gpu\b|auto\b", found.value.strip("\"'")):
            continue  # open, or a range of torchrun's
        if isinstance(found.value, str) and UNKNOWN.search(found.value) and "SLURM" in found.value:
            continue  # Slurm's own, which its header says
        return found
    return None


def _sbatch(sbatch: Mapping[str, str], names: Sequence[str], file: SourceFile) -> Setting | None:
    for name in names:
        if re.fullmatch(r"\d+", sbatch.get(name, "")):
            line = file.line_of(f"--{name}") or file.line_of("#SBATCH")
            return Setting(value=sbatch[name], file=file.name, name=f"#SBATCH --{name}", line=line)
    return None


def _of_slurm(sbatch: Mapping[str, str], file: SourceFile) -> Setting | None:
    """GPUs of a host by Slurm: ``--gres=gpu:8``, ``--gpus-per-node=8``, or its tasks where there are
    several."""
    for name in ("gres", "gpus-per-node"):
        if found := re.search(r"(\d+)\Z", sbatch.get(name, "")):
            line = file.line_of(f"--{name}")
            return Setting(value=found[1], file=file.name, name=f"#SBATCH --{name}", line=line)
    tasks = _sbatch(sbatch, ("ntasks-per-node",), file)
    return tasks if tasks and tasks.value != "1" else None
