"""Programs as data, from end to end: saves what a scenario lowers to, checks and replays what a file holds.

Knows files and scenarios; the format is in program/file.py, the checks in program/check.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from .estimate import check_work, programs_work
from .result.result import Result
from .result.step import Assumption

if TYPE_CHECKING:
    from .engine.record import Record
    from .lowering.lower import Lowered
    from .program.file import SavedProgram
    from .program.program import Programs
    from .scenario.models import Scenario


def save_program(path: str | Path, scenario: Scenario) -> None:
    """Write what the ranks of ``scenario`` will do to ``path``, compressed where it ends in ``.gz``.

    Raises:
        ScenarioError: a scenario that was changed by hand and is no longer valid.
        NotSupported: a legal scenario that the simulator cannot express; names the field.
        ValueError: the file cannot be written; no part of it is left.
    """
    from .lowering.lower import lower
    from .scenario.checked import checked
    from .scenario.machine import cluster_of

    scenario = checked(scenario)
    save_lowered(path, lower(scenario, cluster_of(scenario.cluster)))


def save_lowered(path: str | Path, lowered: Lowered) -> None:
    """Write programs that are at hand already."""
    from .fold.fold import folded
    from .program.file import write_program

    document, ready = lowered.plan.scenario.to_document(), folded(lowered)
    write_program(ready.programs, path, ranks=ready.ranks, scenario=document)


def replay_program(
    path: str | Path,
    *,
    max_events: int | None = None,
    progress: Callable[[str], None] | None = None,
) -> Result:
    """Check the program in ``path`` and replay it.

    The times of its ops are taken as they stand; the scenario, if it has one, is asked for tokens and
    FLOPs only. Memory is no part of a program: the result has none.

    Raises:
        BrokenProgram: it cannot run to its end; lists all problems.
        TooMuchWork: a ValueError: more events than ``max_events`` by an estimate (None: an hour's worth).
        ValueError: the file holds no program, or its scenario is not the program's.
    """
    from .program.check import check_program
    from .program.file import read_program
    from .read_record import read_record

    say = progress or (lambda _: None)
    clock = [time.perf_counter()]

    def lap() -> float:
        clock.append(time.perf_counter())
        return clock[-1] - clock[-2]

    say("reading the program")
    saved = read_program(path)
    scenario = _scenario(saved, Path(path))
    timing = {"read_s": lap()}
    say("checking it")
    check_program(saved.programs, str(path))
    timing["check_s"] = lap()
    check_work(programs_work(saved.programs), max_events)
    say(f"replaying {len(saved.ranks)} classes")
    record = replayed(saved.programs, str(path), nothing="the program takes no time at all")
    timing["replay_s"] = lap()
    timing["total_s"] = clock[-1] - clock[0]
    told = Assumption(text="the times of all ops, as the program states them", source=Path(path).name)
    return read_record(record, scenario=scenario, ranks=saved.ranks, timing=timing, assumptions=(told,))


def replayed(programs: Programs, source: str, *, nothing: str) -> Record:
    """What happens in programs that somebody else wrote, which ``check_program`` has passed.

    Raises:
        BrokenProgram: of ``source``: they do not run to their end all the same, or nothing in them takes any
            time, which the words ``nothing`` say.
    """
    from .engine.replay import replay
    from .program.check import BrokenProgram

    try:
        record = replay(programs)
    except RuntimeError as stuck:  # the engine's own words, should the check have missed a deadlock
        raise BrokenProgram(source, (str(stuck),)) from None
    if not record.makespan_s:
        raise BrokenProgram(source, (nothing,))
    return record


def _scenario(saved: SavedProgram, path: Path) -> Scenario | None:
    """The scenario that the program came from. ValueError where it speaks of another number of GPUs."""
    if saved.scenario is None:
        return None
    from .scenario.load import scenario_from_document

    scenario = scenario_from_document(saved.scenario, f"{path}: scenario")
    ranks = sum(one.count for one in saved.ranks)
    if ranks != scenario.cluster.gpus:
        raise ValueError(
            f"{path}: the classes stand for {ranks:,} ranks (count), "
            f"but its scenario has {scenario.cluster.gpus:,} GPUs"
        )
    return scenario
