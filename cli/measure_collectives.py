"""``stepsim calibrate collectives`` without logs: measures collectives between the processes at hand."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from .output import output_file, wrote

if TYPE_CHECKING:
    from ..calibration.measure.collectives import MeasuredGroups

_LARGEST = {"gloo": 64e6, "nccl": 1e9}
_SMALLEST = 256
_FACTOR = 4


def measure_collectives(
    spawned: int | None,
    backend: str | None,
    out: Path,
    kinds: Sequence[str],
    largest: str | None,
    scenario: str | None,
    budget: str,
) -> None:
    """Measure in processes of this machine (``spawned`` of them), or in those that torchrun started."""
    from .. import __version__
    from ..calibration.measure import collectives as bench
    from ..hardware.collective_kinds import known_kind
    from ..hardware.quantities import quantity_of

    output_file("--out", out, (".csv",), [], appended=True)
    launched = bench.under_torchrun()
    if launched == (spawned is not None):
        raise ValueError(
            "give --spawn N to measure between N processes of this machine, or run this command under "
            "torchrun; with logs of nccl-tests as arguments, it fits the shipped constants"
        )
    kinds = [known_kind(kind) or kind for kind in kinds]
    _check_names(backend, kinds)
    world = _world(spawned)
    groups = tuple(_groups(world, scenario))
    most = quantity_of("--largest", largest, "bytes") if largest else None
    usual = "nccl" if _has_gpu() else "gloo"  # the last of the checks: it needs torch
    backend = backend or usual
    session = bench.Session(
        kinds=tuple(kinds or bench.KINDS),
        sizes=tuple(_sizes(most or _LARGEST[backend])),
        groups=groups,
        backend=backend,
        out=out,
        budget_s=quantity_of("--budget", budget, "seconds"),
        origin={
            "stepsim": __version__,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "command": shlex.join(["stepsim", *sys.argv[1:]]),
        },
    )
    if spawned is None:
        bench.measure(session)
    else:
        bench.spawn(spawned, session)
    if os.environ.get("RANK", "0") == "0":
        wrote("measurements", out)


def _check_names(backend: str | None, kinds: Sequence[str]) -> None:
    """ValueError for a backend or a collective that cannot be measured."""
    from ..calibration.measure.collectives import BACKENDS, KINDS
    from ..hardware.catalogue import unknown_name

    if backend is not None and backend not in BACKENDS:
        raise ValueError(f"--backend: {unknown_name('backend', backend, BACKENDS)}")
    for kind in kinds:
        if kind not in KINDS:
            raise ValueError(f"--kind: {unknown_name('collective', kind, KINDS)}")


def _world(spawned: int | None) -> int:
    """Processes that take part, two at least."""
    from ..calibration.measure.collectives import world_size

    world = world_size() if spawned is None else spawned
    if world < 2:
        named = "torchrun" if spawned is None else f"--spawn {spawned}"
        raise ValueError(f"{named}: a collective is between processes; start two or more")
    return world


def _has_gpu() -> bool:
    """Whether torch finds a GPU. ValueError without torch, which every process here will need."""
    try:
        import torch
    except ImportError:
        raise ValueError(
            "measuring needs torch: pip install 'stepsim[calibration]', or on a machine without a GPU "
            "pip install torch --index-url https://download.pytorch.org/whl/cpu"
        ) from None
    return bool(torch.cuda.is_available())


def _sizes(most: float) -> Iterator[int]:
    """Powers of four from 256 bytes to ``most``, and ``most``."""
    size = _SMALLEST
    while size < most:
        yield size
        size *= _FACTOR
    yield int(most)


def _groups(world: int, scenario: str | None) -> Iterator[MeasuredGroups]:
    """All ranks; with a scenario of that many GPUs, the groups of each of its axes too."""
    from ..calibration.measure.collectives import MeasuredGroups

    yield MeasuredGroups(axis="world", members=(tuple(range(world)),))
    if scenario is None:
        return
    from ..sim.lowering.process_groups import ProcessGroups
    from ..sim.scenario.load import load_scenario

    loaded = load_scenario(scenario)
    if loaded.world_size != world:
        raise ValueError(
            f"{scenario} has {loaded.world_size} GPUs, but {world} processes were started; start as many"
        )
    groups = ProcessGroups(parallelism=loaded.parallelism)
    for axis in ("tp", "cp", "dp", "pp", "ep"):
        members = groups.of(axis)
        if 1 < members.shape[1] < world:
            yield MeasuredGroups(axis=axis, members=tuple(tuple(ranks) for ranks in members.tolist()))
