"""What kernels, collectives and exchanges of tokens cost in the layers of ranks in some groups.

Knows machines, communication and the host; does not know what layers are made of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...hardware.collectives import collective_constants
from ...kernels.cost import kernel_seconds
from ...kernels.gemm import has_static_schedule, tail_seconds
from ...kernels.kernel import MemoryBound
from ..network.token_exchange import Router, token_exchange
from .host_prices import host_prices, loop_prices
from .layers.experts import copies_of
from .layers.layer_builder import KernelPricing
from .layers.local_shape import local_shape_of
from .layers.moe import TOKENS
from .layers.routing import distinct_loads
from .layers.strided import OF_TORCH

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...kernels.gemm import HeldSms
    from ...kernels.kernel import Gemm
    from ..network.transfer import Transfer
    from ..scenario.models import Scenario
    from .communication import Communication
    from .layers.layer_builder import Kernel
    from .machines import GpuKind
    from .placed_groups import RankGroups


def kernel_pricing(
    scenario: Scenario,
    machines: tuple[GpuKind, ...],
    communication: Communication,
    groups: RankGroups,
) -> KernelPricing:
    """What kernels and collectives of ``scenario`` cost in layers of ranks with these ``groups``.

    ``machines``, by kind of GPU, remember the seconds of priced kernels; several scenarios may share them.
    """
    software, machine = scenario.software, machines[groups.kind]
    cluster, profile = machine.cluster, machine.profile
    exchange = _exchange_pricing(scenario, machine, communication, groups)
    least_held = min(collective_constants().sms.values())

    def transfer(axis: str, kind: str, size: float) -> Transfer:
        return exchange(size) if kind == TOKENS else communication.collective(kind, size, groups[axis])

    def static_schedule(gemm: Gemm, held: int) -> bool:
        dealt = software.kernels.hopper_products == "two-passes"
        return dealt and has_static_schedule(gemm, held, cluster.gpu, profile)

    def tail_s(gemm: Gemm, seconds: float, beside: HeldSms) -> float:
        static = static_schedule(gemm, beside.sms)
        return tail_seconds(gemm, seconds, beside, cluster.gpu, profile, static_schedule=static)

    host = host_prices(scenario, profile.steps.host * cluster.node.launch_factor)
    return KernelPricing(
        seconds=_seconds_on(machine),
        transfer=transfer,
        host_s=host.kernel_s,
        host_operator_s=host.operator_s,
        host_collective_s=host.collective_s,
        check_s=lambda axis: communication.check_s(groups[axis]),
        tail_s=tail_s,
        static_schedule=lambda gemm: static_schedule(gemm, least_held),
        sms=cluster.gpu.sms,
        launches_block=software.host.launch_blocking,
        ungraphed=host.eager if software.host.graphs_leave_out_experts else None,
        eager=host.eager,
        loop=loop_prices(software.host.host_s_per_kernel, cluster.node),
        vectorised=OF_TORCH if software.sharding.implementation == "xla" else frozenset(),
    )


def _seconds_on(machine: GpuKind) -> Callable[[Kernel], float]:
    """The seconds of a kernel on a kind of GPU, which remembers them."""
    profile, gpu, kernels = machine.profile, machine.cluster.gpu, machine.kernels
    own = profile.steps

    def seconds(kernel: Kernel) -> float:
        known = kernels.get(kernel)
        if known is None:
            factor = own.memory if isinstance(kernel, MemoryBound) else own.matrix
            known = kernels[kernel] = factor * kernel_seconds(kernel, gpu, profile)
        return known

    return seconds


def _exchange_pricing(
    scenario: Scenario, machine: GpuKind, communication: Communication, groups: RankGroups
) -> Callable[[float], Transfer]:
    """A dispatch or combine, by the bytes of one copy of a rank's tokens."""
    router, software = _router(scenario), scenario.software.exchange
    dispatcher, elastic = software.moe_dispatcher, software.deepep_elastic
    busiest = distinct_loads(scenario)[0]  # an exchange ends when the rank with the most rows has its own
    local = local_shape_of(scenario)
    tokens = busiest * local.norm_tokens * (local.experts.senders if local.experts else 1)

    def exchange(size: float) -> Transfer:
        ep = groups["ep"]
        if dispatcher == "alltoall" and communication.has_measured("all_to_all", ep):
            return communication.collective("all_to_all", size * busiest * router.copies, ep)
        found = token_exchange(
            size * busiest, tokens, router, ep, machine.cluster, dispatcher, elastic=elastic
        )
        return found.slower(machine.profile.steps.of_communication(network=ep.domains > 1))

    return exchange


def _router(scenario: Scenario) -> Router:
    """How the router spreads tokens; a dense model exchanges none, so that any router will do."""
    moe = scenario.model.moe
    if moe is None:
        return Router(experts=1, topk=1, copies=1.0)
    return Router(
        experts=moe.num_experts,
        topk=moe.topk,
        copies=copies_of(moe),
        node_limit=moe.node_limit,
        in_turn=scenario.training.routing == "in_turn",
    )
