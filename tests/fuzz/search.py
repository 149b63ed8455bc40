"""The search for inputs that break the program: ``make fuzz SECONDS=1800 SEED=3``.

Draws a valid file, makes it wrong, asks a command about it in a child, and holds the outcome against the
laws in ``judge.py``. What breaks one is kept in a folder of its own below ``out/fuzz``, with its command,
and the search goes on; it ends with 1 where anything was found.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import re
import shlex
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parent.parent))

import typer.main
from built_commands import build_commands_once
from fuzz.corpus import COMMANDS, Seed, scenarios_around, seed_with, whole, written
from fuzz.fork import Outcome, outcome
from fuzz.hostile import HOSTILE, hostile_content
from fuzz.judge import defects
from fuzz.mutate import ODD, mutated, mutated_bytes, mutated_text
from fuzz.options import COMMAND_LINES, VALUES, fields, odd_value

OUTPUTS = ("svg", "json", "csv", "html", "md", "yaml")
TOLD_EVERY_S = 10.0
_NUMBER = re.compile(r"-?\d[\d.,e+-]*")
HOSTILE_SHARE = 0.2
LIMITED = ("run", "compare", "memory", "faults", "replay")
MOST_EVENTS = "100000"
"""About ten seconds of work: what takes longer, and says so, is no hang, and here it is refused."""
LEFT_OUT = {"measure", "tests", "benchmarks", "docs", "setup"}
"""Packages that need torch, or are no part of the program."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A command and the files that it finds in its folder."""

    name: str
    words: tuple[str, ...]
    files: dict[str, bytes]


def main() -> None:
    """Search for as long as asked; exit code 1 where something was found."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--seconds", type=float, default=120.0)
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--keep", type=Path, default=Path("out/fuzz"))
    asked.add_argument("--only", default="", help="trials whose name holds this")
    options = asked.parse_args()
    warm_up()
    found = search(options.seconds, options.seed, options.keep, options.only)
    sys.exit(1 if found else 0)


def search(seconds: float, seed: int, keep: Path, only: str = "") -> int:
    """How many different laws were broken, by command."""
    began = told = time.monotonic()
    codes: Counter[int | None] = Counter()
    broken: Counter[str] = Counter()
    slowest = (0.0, "")
    for number, trial in enumerate(trials(seed)):
        now = time.monotonic()
        if now - began > seconds:
            break
        if now - told > TOLD_EVERY_S:
            told = now
            print(
                f"{now - began:6.0f} s: {number:,} inputs, {sum(broken.values())} defects",
                file=sys.stderr,
                flush=True,
            )
        if only not in trial.name:
            continue
        ended, wrong = tried(trial)
        codes[ended.code] += 1
        slowest = max(slowest, (ended.seconds, f"{trial.name}, {shlex.join(trial.words)[:80]}"))
        for what in wrong:
            kind = f"{trial.words[0]}: {_NUMBER.sub('#', what)[:80]}"
            broken[kind] += 1
            if broken[kind] <= 3:
                _keep(keep / f"seed{seed}-{number}", trial, ended, what)
    took = time.monotonic() - began
    print(f"seed {seed}: {sum(codes.values()):,} inputs in {took:.0f} s")
    print(f"slowest: {slowest[0]:.1f} s, {slowest[1]}")
    print("exit codes: " + ", ".join(f"{code}: {count:,}" for code, count in sorted(codes.items(), key=str)))
    for kind, count in broken.most_common():
        print(f"DEFECT {count:5d} x {kind}")
    return len(broken)


def tried(trial: Trial) -> tuple[Outcome, list[str]]:
    """The outcome of a trial in a fresh folder, and the laws that it breaks."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
        folder = Path(name)
        kept = {}
        for file, content in trial.files.items():
            path = folder / file
            path.write_bytes(content)
            kept[path] = content
        ended = outcome(trial.words, folder)
        return ended, list(defects(ended, folder, kept))


def _keep(folder: Path, trial: Trial, ended: Outcome, what: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for file, content in trial.files.items():
        (folder / file).write_bytes(content)
    (folder / "command").write_text(shlex.join(trial.words) + "\n", encoding="utf-8", errors="replace")
    told = (what, f"exit code {ended.code} after {ended.seconds:.1f} s")
    shown = ("--- stdout", ended.stdout[-4000:], "--- stderr", ended.stderr[-4000:], "")
    (folder / "outcome").write_text("\n".join((*told, *shown)), encoding="utf-8")
    print(f"DEFECT {what[:200]}\n  cd {folder} && stepsim {shlex.join(trial.words)[:300]}", flush=True)


def warm_up() -> None:
    """Import what a command may import late, and build the commands, so that children need not."""
    import stepsim
    from stepsim.cli.main import app

    for module in pkgutil.walk_packages(stepsim.__path__, "stepsim."):
        if not set(module.name.split(".")) & LEFT_OUT:
            importlib.import_module(module.name)
    for name in (
        "networkx",
        "pandas",
        "rich.console",
        "rich.table",
        "scipy.optimize",
        "scipy.stats",
        "orjson",
    ):
        importlib.import_module(name)
    build_commands_once()
    typer.main.get_command(app)


def trials(seed: int) -> Iterator[Trial]:
    """Inputs without end: some are hostile files, as long as there are any, the others are drawn."""
    rng = Random(seed)
    kinds = [seed_of(file) for file in COMMANDS]
    hostile = hostile_trials(kinds, rng)
    paths = fields()
    while True:
        if rng.random() < HOSTILE_SHARE and (trial := next(hostile, None)):
            yield trial
        match rng.randrange(10):
            case 0 | 1:
                yield _set(rng, paths)
            case 2:
                yield _line(rng)
            case _:
                yield _of_seed(rng.choice(kinds), rng)


def hostile_trials(kinds: list[Seed], rng: Random) -> Iterator[Trial]:
    """Every hostile content as every kind of file."""
    pairs = [(name, kind) for name in HOSTILE for kind in kinds]
    rng.shuffle(pairs)
    for name, kind in pairs:
        packed = name.startswith("a packed") and kind.file in ("torch.json", "program.json")
        file = f"{kind.file}.gz" if packed else kind.file
        yield trial_of(kind, hostile_content(name), rng.choice(kind.commands), file, name)


def _of_seed(kind: Seed, rng: Random) -> Trial:
    """A seed with a few of its nodes, words or bytes changed."""
    way = rng.randrange(6)
    if kind.document is not None and way < 4:
        times = rng.choice((1, 1, 1, 2, 4))
        content = written(mutated(kind.document, rng, times, VALUES), kind.file)
    elif way < 5 and not kind.file.endswith(".sqlite"):
        text = mutated_text(kind.content.decode("utf-8", errors="replace"), rng)
        content = text.encode("utf-8", errors="replace")
    else:
        content = mutated_bytes(kind.content, rng, rng.choice((1, 1, 2, 8)))
    return trial_of(kind, content, rng.choice(kind.commands), kind.file)


def _set(rng: Random, paths: tuple[str, ...]) -> Trial:
    """A valid scenario with one to three fields set to odd values on the command line."""
    file = "weeks.yaml" if rng.random() < 0.3 else "step.yaml"
    command = "faults" if file == "weeks.yaml" else rng.choice(("run", "memory", "cluster"))
    words = [command, file, "--json"]
    if command in LIMITED:
        words += ["--max-events", MOST_EVENTS]
    for _ in range(rng.choice((1, 1, 2, 3))):
        words += ["--set", f"{rng.choice(paths)}={odd_value(rng)}".replace("\x00", "0")]
    return Trial(name="--set", words=tuple(words), files={file: whole(file)})


def _line(rng: Random) -> Trial:
    """A command line with one of its words replaced by an odd one."""
    words = shlex.split(rng.choice(COMMAND_LINES))
    if rng.random() < 0.9:
        words[rng.randrange(len(words))] = odd_value(rng) if rng.random() < 0.7 else str(rng.choice(ODD))
    return Trial(
        name="command line",
        words=tuple(word.replace("\x00", "0") for word in words),
        files={"a.yaml": whole("step.yaml"), "w.yaml": whole("weeks.yaml")},
    )


def trial_of(kind: Seed, content: bytes, command: str, file: str, what: str = "") -> Trial:
    """The files of a trial and its command, with names in place of ``{...}``."""
    files = {file: content, f"other-{kind.file}": kind.content}
    names = {"file": file, "other": f"other-{kind.file}"} | {out: f"out.{out}" for out in OUTPUTS}
    for around, document in scenarios_around(file).items():
        if f"{{{around}}}" in command:
            names[around] = f"with-{around}.yaml"
            files[names[around]] = written(document, names[around])
    words = shlex.split(command)
    if words[0] in LIMITED:
        words += ["--max-events", MOST_EVENTS]
    return Trial(
        name=f"{kind.file}: {what}" if what else kind.file,
        words=tuple(_filled(word, names) for word in words),
        files=files,
    )


def _filled(word: str, names: dict[str, str]) -> str:
    for name, file in names.items():
        word = word.replace(f"{{{name}}}", file)
    return word


def seed_of(file: str) -> Seed:
    """The valid file of that name."""
    return seed_with(file, saved_program() if file == "program.json" else whole(file))


@lru_cache(maxsize=1)
def saved_program() -> bytes:
    """A small lowered program, as ``run --save-program`` writes it: no file of the corpus, since it changes
    with the program."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "a.yaml").write_bytes(whole("step.yaml"))
        done = outcome(["run", "a.yaml", "--save-program", "p.json", "--json"], folder)
        if done.code not in (0, 1):
            raise RuntimeError(f"the valid scenario fails: {done.stderr}")
        return (folder / "p.json").read_bytes()


if __name__ == "__main__":
    main()
