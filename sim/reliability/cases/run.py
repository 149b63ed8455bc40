"""All cases, in the order of the reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from ..study.study import Progress
from . import checkpoints, explained, processes, published
from .case import CaseVerdict

CASES: tuple[Callable[[], Iterator[CaseVerdict]], ...] = (
    checkpoints.blocking,
    checkpoints.where_time_goes,
    checkpoints.daly,
    checkpoints.asynchronous,
    checkpoints.spread,
    processes.spares,
    processes.sizes,
    checkpoints.meta,
    published.llama3,
    published.megascale,
    published.byterobust,
    processes.standbys,
    published.ft_hsdp,
    published.torchft,
    explained.traces,
    processes.slow_hosts,
    processes.episodes,
    explained.opt,
    explained.c4,
    processes.guards,
    processes.identity,
    processes.peer_groups,
)


def run_cases(slowdowns: Mapping[str, float], progress: Progress | None) -> list[CaseVerdict]:
    """Every row; some minutes. ``slowdowns`` are those of case 15, by the name of the log."""
    say = progress or (lambda _: None)
    rows: list[CaseVerdict] = []
    for case in CASES:
        say(f"{case.__module__.rpartition('.')[2]}.{case.__name__}")
        rows += explained.traces(slowdowns) if case is explained.traces else case()
    return rows
