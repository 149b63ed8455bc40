"""What an interval widens by on hardware that nobody measured, and for each figure that its description
leaves out.

Knows of which part of the critical path each figure decides. Does not know how causes are put together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ...hardware.calibrated.overlay import profile_names
from ...hardware.deviations import shipped_deviations
from ...hardware.gpus import get_gpu
from ...kernels.kernel import Gemm
from ..result.step import IntervalPart

if TYPE_CHECKING:
    from ...hardware.carried import Moves
    from ...hardware.gpu import Gpu
    from ..lowering.plan import StepPlan

_PATH: Mapping[Moves, tuple[str, ...]] = {
    "matrix": ("GEMM", "attention"),
    "memory": ("memory-bound kernels", "optimizer"),
}
"""Parts of the critical path that a figure decides."""

_NO_TIME: tuple[Moves, ...] = ("details", "capacity", "energy")


def unmeasured_hardware(
    shares: Mapping[str, float], tiers: Mapping[str, float], plan: StepPlan
) -> Iterator[IntervalPart]:
    """Parts of a GPU without a measurement, of a network of the user's own, and of figures that were
    carried."""
    gpu, network, known = plan.cluster.gpu, plan.cluster.interconnect, shipped_deviations()
    if not _known_host(gpu):
        inside = _in_a_host(tiers, plan)
        if plan.cluster.nvlink_domain < min(plan.cluster.gpus_per_node, plan.cluster.gpus) and inside > 0:
            one = known["collectives_pcie"]
            name = "communication over PCIe of a host that nobody measured"
            yield IntervalPart(name=name, share=inside, sigma=one.sigma, source=one.source, kind="hardware")
    if network.own and tiers.get("network", 0.0) > 0:
        one = known["collectives_network_carried"]
        name = f"network {network.name}, never measured"
        yield IntervalPart(
            name=name, share=tiers["network"], sigma=one.sigma, source=one.source, kind="hardware"
        )
    for figure in (*gpu.carried, *network.carried):
        share = _share_of(figure.moves, shares, tiers, plan)
        if figure.sigma > 0 and share > 0:
            yield IntervalPart(
                name=f"{figure.field}, as {figure.relative} for want of a figure",
                share=share,
                sigma=figure.sigma,
                source="the spread of this figure among GPUs of its architecture",
                kind="hardware",
            )


def unmeasured_kernels(shares: Mapping[str, float], plan: StepPlan) -> IntervalPart | None:
    """What GEMMs and attention are in doubt by on a GPU without a shipped profile; None elsewhere, and
    where curves of the user's own measured them all. Of a step in which these measured a part, the
    standard deviation is that of the rest, over all of it."""
    gpu = plan.cluster.gpu
    if gpu.measured_as in profile_names():
        return None
    carried = dict(zip(_PATH["matrix"], (_carried_products(plan), _carried_attention(plan)), strict=True))
    share = sum(shares.get(name, 0.0) for name in carried)
    unmeasured = sum(shares.get(name, 0.0) for name, is_carried in carried.items() if is_carried)
    if not unmeasured:
        return None
    one, name = shipped_deviations()["unmeasured_gpu"], f"kernels of {gpu.name}, never measured"
    sigma = one.sigma * unmeasured / share
    return IntervalPart(name=name, share=share, sigma=sigma, source=one.source, kind="hardware")


def _known_host(gpu: Gpu) -> bool:
    """Whether the GPUs of a host are joined as those of a GPU that was measured."""
    if gpu.measured_as not in profile_names():
        return False
    as_sold = get_gpu(gpu.measured_as)
    return not gpu.same_kernels or all(getattr(gpu, one) == getattr(as_sold, one) for one in _LINKS)


_LINKS = ("nvlink_bytes_per_s", "nvlink_domain", "pcie_bytes_per_s", "peer_access")


def _carried_products(plan: StepPlan) -> bool:
    """Whether a type of the step's GEMMs runs at a rate that another GPU reached."""
    carried = {rate.dtype: rate.provenance.carried for rate in plan.profile.gemm.rates}
    types = {kernel.dtype for kernel in plan.kernels if isinstance(kernel, Gemm)}
    return any(carried.get(dtype, carried.get("bf16", True)) for dtype in types)


def _carried_attention(plan: StepPlan) -> bool:
    """Whether the step's attention has no curve that was measured on this GPU."""
    name = plan.scenario.software.kernels.attention
    return all(one.provenance.carried for one in plan.profile.attention if one.implementation == name)


def _in_a_host(tiers: Mapping[str, float], plan: StepPlan) -> float:
    """Share of the path that communicates inside a host; of cards without NVLink that is all of one
    host's."""
    over_pcie = tiers.get("network", 0.0) if plan.cluster.nodes == 1 else 0.0
    return tiers.get("node", 0.0) + over_pcie


def _share_of(moves: Moves, shares: Mapping[str, float], tiers: Mapping[str, float], plan: StepPlan) -> float:
    """Share of the critical path that a figure decides."""
    if moves in _NO_TIME:
        return 0.0
    if moves in _PATH:
        return sum(shares.get(name, 0.0) for name in _PATH[moves])
    return _in_a_host(tiers, plan) if moves == "node" else tiers.get("network", 0.0)
