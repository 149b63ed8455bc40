"""What hosts cannot do: launches that block beside overlap, partial graphs, barriers without a common end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..scenario.refusal import NotSupported

if TYPE_CHECKING:
    from ..scenario.models import Scenario

BLOCKS = "set software.host.launch_blocking to false, since nothing does where launches block"


def refuse_launches(scenario: Scenario) -> None:
    """Refuse overlaps where kernel launches block the host: nothing runs beside a kernel then."""
    software = scenario.software
    if not software.host.launch_blocking:
        return
    beside_kernels = {
        "gradients.overlap_grad_reduce": software.gradients.overlap_grad_reduce,
        "gradients.overlap_param_gather": software.gradients.overlap_param_gather,
        "exchange.tp_comm_overlap": software.exchange.tp_comm_overlap,
        "host.cuda_graphs": software.host.cuda_graphs,
    }
    for field, on in beside_kernels.items():
        if on:
            raise NotSupported(f"software.{field}", "no launch may block then; set launch_blocking to false")
    if scenario.parallelism.zero > 1:
        zero = scenario.parallelism.zero
        raise NotSupported(
            "parallelism.zero", f"ZeRO-{zero} moves parameters or gradients beside kernels; {BLOCKS}"
        )
    if scenario.parallelism.pp > 1 and software.pipeline.point_to_point != "blocking":
        raise NotSupported(
            "software.pipeline.point_to_point",
            f"{software.pipeline.point_to_point} runs beside kernels; {BLOCKS}",
        )


def refuse_partial_graphs(scenario: Scenario) -> None:
    """Refuse CUDA graphs that leave attention out and hold experts: no scope of Megatron core has these
    alone."""
    host = scenario.software.host
    if host.graphs_leave_out_attention and not (host.cuda_graphs and host.graphs_leave_out_experts):
        raise NotSupported(
            "software.host.graphs_leave_out_attention",
            "belongs to cuda_graphs with graphs_leave_out_experts; set both, or leave it out",
        )


def refuse_barrier(scenario: Scenario) -> None:
    """Refuse a barrier at the end of a step whose ranks have no common end."""
    if scenario.software.host.step_barrier and scenario.software.gradients.optimizer_post_validation:
        raise NotSupported(
            "software.host.step_barrier",
            "under optimizer_post_validation ranks go on one by one to the next step; set one to false",
        )
