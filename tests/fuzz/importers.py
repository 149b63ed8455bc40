"""The search for framework files that break an import: ``make fuzz-importers COUNT=100000 SEED=3``.

Makes valid files wrong and imports them in a child of this process, some hundreds one after the other: a
child that dies or hangs costs its batch no more than the file that did it. What may come out is a scenario or
an error of the user's; all else is kept below ``out/fuzz/importers``, and the search ends with 1.

Knows which files are drawn and what may come out; how files are made wrong is in ``mutate.py``.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import random
import resource
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from framework_files import FILES
from fuzz.corpus import FOLDER, written
from fuzz.mutate import ODD, mutated, mutated_bytes, mutated_text
from imported_configs import ASSUMED

from stepsim.hardware.files import load_yaml
from stepsim.sim.defects import is_of_the_user
from stepsim.sim.scenario.errors import ScenarioError
from stepsim.sim.scenario.importers.entry import commented_yaml, given_of
from stepsim.sim.scenario.importers.importer import ImportJob
from stepsim.sim.scenario.importers.registry import importer_of
from stepsim.sim.scenario.importers.sources import source_of
from stepsim.sim.scenario.load import scenario_from_document

BATCH = 500
"""Files that one child imports: what leaks in between ends with it."""

HANG_S = 20
"""Seconds on a core that no import may take."""

MEMORY_BYTES = 2 << 30
"""Address space of a child beyond what its parent holds: past it, MemoryError."""

TOLD_EVERY_S = 30.0

VALUES: tuple[object, ...] = (
    *ODD, "auto", "none", "${x}", "${oc.env:HOME}", "$((1/0))", "${A:-${B:-1}}", "[1] * 10**9", "full", "fp8",
    3, 7, 12, 1024, 99991, 10**9, -2, 0.5, "1e9", "0x10", "2,4", "a=b", "../../etc/passwd",
)  # fmt: skip
"""What a setting of a framework may be by mistake."""

MACHINE = {"gpu": "H100-SXM5-80GB", "interconnect": "ib-ndr400-x8"}
ROUNDS = 6
"""Questions of an import that are answered, one after the other, to learn what facts a valid file needs."""


@dataclass(frozen=True, kw_only=True)
class SeedFile:
    """A valid file: its name, its bytes, its document where it is JSON or YAML, and the facts that it needs.

    ``framework`` is whose it is where nothing in it says so.
    """

    name: str
    content: bytes
    document: Any = None
    framework: str | None = None
    given: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A file made wrong, with the facts beside it."""

    number: int
    name: str
    content: bytes
    given: tuple[str, ...]
    framework: str | None = None


def main() -> None:
    """Import as many files as asked; exit code 1 where something was found."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--count", type=int, default=10_000)
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--keep", type=Path, default=Path("out/fuzz/importers"))
    asked.add_argument("--configs", type=Path, help="a folder with more valid files, read as they are")
    options = asked.parse_args()
    sys.exit(1 if search(options.count, options.seed, options.keep, options.configs) else 0)


def search(count: int, seed: int, keep: Path, configs: Path | None) -> int:
    """How many different defects were found."""
    seeds = [*own_seeds(), *(more_seeds(configs) if configs else ())]
    began = told = time.monotonic()
    ends: Counter[str] = Counter()
    broken: Counter[str] = Counter()
    number = 0
    while number < count:
        size = min(BATCH, count - number)
        for trial, ended in imported_batch(seeds, seed, range(number, number + size)):
            ends[ended if ended in ("imported", "refused") else "DEFECT"] += 1
            if ended not in ("imported", "refused"):
                broken[ended.splitlines()[0][:120]] += 1
                _keep(keep / f"seed{seed}-{trial.number}", trial, ended)
        number += size
        if time.monotonic() - told > TOLD_EVERY_S:
            told = time.monotonic()
            print(f"{told - began:6.0f} s: {number:,} files, {dict(ends)}", file=sys.stderr, flush=True)
    print(f"seed {seed}: {number:,} files of {len(seeds)} in {time.monotonic() - began:.0f} s")
    print(", ".join(f"{end}: {times:,}" for end, times in sorted(ends.items())))
    for kind, times in broken.most_common():
        print(f"DEFECT {times:5d} x {kind}")
    return len(broken)


def own_seeds() -> Iterator[SeedFile]:
    """A valid file of each framework."""
    for name, text in FILES.values():
        yield seed_file(name, text.encode())
    for name in ("train.sh", "titan.toml", "nanotron.yaml", "deepspeed.json"):
        yield seed_file(name, (FOLDER / name).read_bytes())


def more_seeds(folder: Path) -> Iterator[SeedFile]:
    """Files below a folder that an importer may be asked about."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix in (".toml", ".json", ".yaml", ".yml", ".sh", ".slurm"):
            yield seed_file(path.name, path.read_bytes())
        elif path.suffix == ".jsonl":
            for line in path.read_text(encoding="utf-8").splitlines():
                yield seed_file("arguments.json", line.encode(), json.loads(line)["framework"])


def seed_file(name: str, content: bytes, framework: str | None = None) -> SeedFile:
    """The file, with its document where JSON or YAML hold one."""
    document = None
    if name.endswith((".json", ".yaml", ".yml")):
        with suppress(ValueError):
            document = load_yaml(content.decode("utf-8", errors="replace"), name)
    return SeedFile(
        name=name,
        content=content,
        document=document,
        framework=framework,
        given=facts_for(name, content, framework),
    )


def facts_for(name: str, content: bytes, framework: str | None) -> tuple[str, ...]:
    """Facts with which a valid file is imported, or as many of them as it asks for."""
    given = dict(MACHINE)
    for _ in range(ROUNDS):
        try:
            import_of(name, content.decode("utf-8", errors="replace"), tuple(_lines(given)), framework)
        except ScenarioError as error:
            paths = [problem.path for problem in error.problems]
            given |= {path: ASSUMED[path] for path in paths if path in ASSUMED}
            for path in paths:
                given.pop(path.removeprefix("--given ") if path.startswith("--given ") else "", None)
        except ValueError:
            break
    return tuple(_lines(given))


def _lines(given: dict[str, str]) -> Iterator[str]:
    return (f"{name}={value}" for name, value in given.items())


def trial_of(seeds: list[SeedFile], seed: int, number: int) -> Trial:
    """The wrong file of that number, the same every time."""
    drawn = Random(f"{seed}-{number}")
    one = drawn.choice(seeds)
    given = one.given if drawn.random() < 0.8 else tuple(_other(fact, drawn) for fact in one.given)
    way = drawn.randrange(6)
    random.seed(drawn.random())
    if one.document is not None and way < 3:
        content = written(mutated(one.document, drawn, drawn.choice((1, 1, 1, 2, 4)), VALUES), one.name)
    elif way < 5:
        text = one.content.decode("utf-8", errors="replace")
        for _ in range(drawn.choice((1, 1, 2))):
            text = with_a_value(text, drawn) if drawn.random() < 0.5 else mutated_text(text, drawn)
        content = text.encode("utf-8", errors="replace")
    else:
        content = mutated_bytes(one.content, drawn, drawn.choice((1, 1, 2, 8)))
    return Trial(number=number, name=one.name, content=content, given=given, framework=one.framework)


def _other(fact: str, drawn: Random) -> str:
    """The fact, or now and then another value of it."""
    name, _, value = fact.partition("=")
    return f"{name}={drawn.choice(VALUES) if drawn.random() < 0.3 else value}"


def with_a_value(text: str, drawn: Random) -> str:
    """``text`` with what stands after ``=``, ``:`` or an option in one of its lines replaced."""
    lines = text.split("\n")
    places = [at for at, line in enumerate(lines) if any(sign in line for sign in ("=", ":", "--"))]
    if not places:
        return text
    at = drawn.choice(places)
    value = str(drawn.choice(VALUES))
    for sign in ("=", ": ", " "):
        head, found, _ = lines[at].rpartition(sign)
        if found:
            lines[at] = f"{head}{sign}{value}"
            break
    return "\n".join(lines)


def ending(trial: Trial) -> str:
    """How the import of a file ends: ``imported``, ``refused``, or the text of a defect."""
    try:
        text = trial.content.decode("utf-8")
    except UnicodeDecodeError:  # the file's reader refuses it, before any importer
        return "refused"
    try:
        import_of(trial.name, text, trial.given, trial.framework)
    except Exception as error:
        if isinstance(error, ScenarioError) and not error.problems:
            return "a refusal without a problem"
        return "refused" if is_of_the_user(error) else _told(error)
    return "imported"


def import_of(name: str, text: str, given: tuple[str, ...], framework: str | None) -> None:
    """Import a file as the command does: to a scenario that is checked, and to its YAML with comments.

    Raises:
        ValueError: what the command tells a user.
    """
    files = (source_of(text, Path(name)),)
    read = importer_of(files, framework).read(ImportJob(files=files, given=given_of(given)))
    commented_yaml(read, name)
    scenario_from_document(read.document, "mutated")


def _told(error: BaseException) -> str:
    step = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(step.filename).name}:{step.lineno}"
    return f"{type(error).__name__} at {where}: {str(error)[:100]}\n{traceback.format_exc()[-4000:]}"


def imported_batch(seeds: list[SeedFile], seed: int, numbers: range) -> Iterator[tuple[Trial, str]]:
    """The endings of some trials, in a child; where it dies, its trial is a defect, and another goes on."""
    first = numbers.start
    while first < numbers.stop:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            _in_child(seeds, seed, range(first, numbers.stop), writing)
        os.close(writing)
        with os.fdopen(reading, "rb") as answers:
            done = first
            with suppress(EOFError, pickle.UnpicklingError):
                while done < numbers.stop:
                    yield trial_of(seeds, seed, done), pickle.load(answers)
                    done += 1
        _, status = os.waitpid(child, 0)
        if done < numbers.stop:
            yield trial_of(seeds, seed, done), f"the process ended with status {status}"
            done += 1
        first = done


def _in_child(seeds: list[SeedFile], seed: int, numbers: range, writing: int) -> None:
    """Never returns."""
    held = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + MEMORY_BYTES, held + MEMORY_BYTES))
    signal.signal(signal.SIGVTALRM, _hangs)
    with os.fdopen(writing, "wb") as answers:
        for number in numbers:
            trial = trial_of(seeds, seed, number)
            signal.setitimer(signal.ITIMER_VIRTUAL, HANG_S)
            try:
                ended = ending(trial)
            except Hangs as hang:
                ended = _told(hang)
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            pickle.dump(ended, answers)
            answers.flush()
    os._exit(0)


class Hangs(BaseException):
    """An import that takes too long; no ``except Exception`` may take it for an answer."""


def _hangs(_number: int, _frame: FrameType | None) -> None:
    raise Hangs(f"no end after {HANG_S} s")


def _keep(folder: Path, trial: Trial, ended: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / trial.name).write_bytes(trial.content)
    command = " ".join(["import", trial.name, *(f"--given {fact}" for fact in trial.given)])
    (folder / "command").write_text(command + "\n", encoding="utf-8")
    (folder / "outcome").write_text(ended, encoding="utf-8", errors="replace")
    print(f"DEFECT {ended.splitlines()[0][:200]}\n  {folder}", flush=True)


if __name__ == "__main__":
    main()
