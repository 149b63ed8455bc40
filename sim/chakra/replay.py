"""Execution traces from end to end: written for a scenario, read, checked and replayed.

Knows which traces are this package's own: machine.json lies beside them, and they replay to the step that was
predicted. All others are replayed as they stand, or priced on a cluster.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..estimate import check_work, programs_work
from ..replay import replayed
from ..result.result import Result
from ..result.step import Assumption, RankClass
from .node import TraceSet

if TYPE_CHECKING:
    from ..program.program import Programs
    from ..scenario.models import Scenario
    from .pricing import Rule

_NAME = "stepsim"


def save_traces(folder: Path, scenario: Scenario, *, fold: bool = True) -> tuple[Path, ...]:
    """Write an execution trace for each class of ranks of ``scenario`` (``fold=False``: for each rank).

    Raises:
        NotSupported: a legal scenario that the simulator cannot express; names the field.
        ValueError: protobuf is not installed, too many ranks to write one by one, or no file can be written.
    """
    from orjson import OPT_SORT_KEYS, dumps

    from ..fold.fold import folded, unfolded
    from ..lowering.lower import lower
    from ..lowering.process_groups import process_groups_of
    from ..program.bind import bound
    from ..program.writer import document_lines
    from ..scenario.checked import checked
    from ..scenario.machine import cluster_of
    from .files import write_traces
    from .from_programs import traces_of, without_ops

    scenario = checked(scenario)
    lowered = lower(scenario, cluster_of(scenario.cluster))
    ready = folded(lowered) if fold else unfolded(lowered)
    groups = process_groups_of(scenario)
    traces = traces_of(bound(ready.programs), ready.ranks, groups, str(folder))
    machine = document_lines(without_ops(ready.programs), ready.ranks, scenario.to_document(), {})
    members = dumps({name: list(ranks) for name, ranks in traces.groups.items()}, option=OPT_SORT_KEYS)
    return write_traces(traces, folder, _NAME, b"\n".join(machine) + b"\n", members + b"\n")


def replay_traces(
    path: Path,
    *,
    cluster: Scenario | None = None,
    rule: Rule = "duration",
    max_events: int | None = None,
    progress: Callable[[str], None] | None = None,
) -> Result:
    """Check the execution traces in ``path`` (a folder, an archive, a file) and replay them.

    Ours replay as predicted, with ``cluster`` by ``rule`` and that cluster's network; so do others, which
    lose nothing to what runs beside.

    Raises:
        BrokenProgram: they cannot run to their end; lists all problems.
        TooMuchWork: a ValueError: more events than ``max_events`` by an estimate (None: an hour's worth).
        ValueError: naming file and node: no traces, or nothing says what a node takes.
    """
    from ..program.check import BrokenProgram, check_program
    from ..read_record import read_record
    from .files import read_traces
    from .validate import notes, problems

    say = progress or (lambda _: None)
    began = time.perf_counter()
    say("reading the traces")
    traces = read_traces(path)
    say("checking them")
    wrong = problems(traces)
    if wrong:
        raise BrokenProgram(traces.source, tuple(one.removeprefix(f"{traces.source}: ") for one in wrong))
    programs, ranks, scenario = _programs(traces, cluster, rule)
    check_program(programs, traces.source)
    check_work(programs_work(programs), max_events)
    say(f"replaying {len(ranks)} traces")
    record = replayed(programs, traces.source, nothing="nothing in these traces takes any time")
    told = (
        *_rests_on(traces, cluster, rule),
        *(Assumption(text=one, source=path.name) for one in notes(traces)),
    )
    result = read_record(record, scenario=scenario, ranks=ranks, timing={"total_s": 0.0}, assumptions=told)
    return replace(result, timing={"total_s": time.perf_counter() - began})


def _programs(
    traces: TraceSet, cluster: Scenario | None, rule: Rule
) -> tuple[Programs, tuple[RankClass, ...], Scenario | None]:
    if traces.machine is not None:
        from ..scenario.load import scenario_from_document
        from .to_programs import own_programs

        own = own_programs(traces, cluster, rule)
        document = own.scenario
        where = f"{traces.source}: machine.json: scenario"
        scenario = None if document is None else scenario_from_document(dict(document), where)
        return own.programs, own.ranks, scenario
    from .foreign import foreign_programs
    from .pricing import Prices

    prices = None if cluster is None else Prices(scenario=cluster)
    ranks = tuple(
        RankClass(name=f"rank {one.rank}", pp=0, count=1, first_rank=one.rank) for one in traces.ranks
    )
    return foreign_programs(traces, prices, rule), ranks, None


def _rests_on(traces: TraceSet, cluster: Scenario | None, rule: Rule) -> Sequence[Assumption]:
    source = Path(traces.source).name
    if cluster is None:
        return (Assumption(text="the times of all nodes, as the traces state them", source=source),)
    kernels = "FLOPs and bytes at the GPU's peaks" if rule == "flops" else "durations of kernels as traced"
    return (
        Assumption(
            text=f"{kernels}; collectives and messages on {cluster.title or cluster.name}", source=source
        ),
    )
