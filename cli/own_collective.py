"""``stepsim collective --calibration``: a collective by the curves of one's own measurements."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .collective_cases import case_on
from .output import console, echo_json

if TYPE_CHECKING:
    from ..hardware.collective_curve import CollectiveCurve


def show_own(
    kind: str,
    sizes: list[float],
    gpus: int,
    gpu: str | None,
    interconnect: str,
    gpus_per_node: int,
    path: Path,
    *,
    as_json: bool,
) -> None:
    """Print the time of every size, by what it is: measured, extrapolated, carried, or the model alone."""
    from ..hardware.calibrated.models import CPU
    from ..hardware.calibrated.overlay import collective_curves
    from ..hardware.calibrated.read import read_profile_file

    own = read_profile_file(path)
    if gpu is not None and gpu != own.gpu:
        raise ValueError(f"{path}: is a profile of {own.gpu}, not of {gpu} as --gpu says")
    curves = collective_curves(own)
    if not curves:
        raise ValueError(f"{path}: has no collectives")
    hosts = -(-gpus // gpus_per_node)
    if own.gpu == CPU:
        rows = [_measured(_exact(curves, kind, gpus, hosts, path), size) for size in sizes]
    else:
        rows = _on_cluster(kind, sizes, gpus, own.gpu, interconnect, gpus_per_node, curves)
    if as_json:
        documents = [{"kind": kind, "ranks": gpus, "gpu": own.gpu, **row} for row in rows]
        echo_json(documents[0] if len(documents) == 1 else documents)
    else:
        _print(kind, gpus, own.gpu, rows)


def _exact(
    curves: Sequence[CollectiveCurve], kind: str, ranks: int, domains: int, path: Path
) -> CollectiveCurve:
    """The curve of that very group; nothing carries a curve between groups of processes without a GPU."""
    for curve in curves:
        if (curve.kind, curve.ranks, curve.domains) == (kind, ranks, domains):
            return curve
    known = ", ".join(f"{one.kind} of {one.ranks} on {one.domains}" for one in curves)
    raise ValueError(f"{path}: {kind} of {ranks} ranks on {domains} hosts was not measured; there is {known}")


def _measured(curve: CollectiveCurve, size: float) -> dict[str, Any]:
    basis = "measured range" if curve.covers(size) else "extrapolated"
    return {"bytes": size, "time_s": curve.solo_s(size), "basis": basis, "in_range": curve.covers(size)}


def _on_cluster(
    kind: str,
    sizes: list[float],
    gpus: int,
    gpu: str,
    interconnect: str,
    gpus_per_node: int,
    curves: tuple[CollectiveCurve, ...],
) -> list[dict[str, Any]]:
    from ..sim.lowering.communication import nearest_curve
    from ..sim.report.collective import collective_cost

    case = case_on(kind, sizes, gpus, gpu, interconnect, gpus_per_node)
    placement = case.placement
    curve = nearest_curve(curves, kind, placement.ranks, placement.domains)
    if curve is not None and (curve.ranks, curve.domains) == (placement.ranks, placement.domains):
        return [_measured(curve, size) for size in sizes]
    basis = "the model: that kind and tier was not measured"
    if curve is not None:
        there = case_on(kind, sizes, curve.ranks, gpu, interconnect, curve.ranks // curve.domains)
        basis = f"carried from {curve.ranks} ranks"
    rows = []
    for size in sizes:
        time_s, note = collective_cost(kind, size, placement, case.cluster).time_s, ""
        if curve is not None:
            time_s *= curve.solo_s(size) / collective_cost(kind, size, there.placement, there.cluster).time_s
            note = "" if curve.covers(size) else ", extrapolated"
        rows.append({"bytes": size, "time_s": time_s, "basis": basis + note, "in_range": False})
    return rows


def _print(kind: str, ranks: int, gpu: str, rows: Sequence[dict[str, Any]]) -> None:
    from ..calibration.validation.grids import Grid
    from ..calibration.validation.tables import print_grid
    from ..sim.figures import seconds
    from ..sim.network.group_placement import payload_factor

    shown = tuple(
        (
            f"{row['bytes']:,.0f}",
            seconds(row["time_s"]),
            f"{row['bytes'] / row['time_s'] / 1e9:.2f}",
            f"{row['bytes'] / row['time_s'] * payload_factor(kind, ranks) / 1e9:.2f}",
            str(row["basis"]),
        )
        for row in rows
    )
    columns = ("bytes", "time", "algbw GB/s", "busbw GB/s", "by")
    print_grid(
        Grid(title=f"{kind}, {ranks} ranks, {gpu}: own curves", columns=columns, rows=shown, labels=0),
        console(),
    )
