"""What experts cannot do: torch's operators over exchanged rows, tokens of ranks that share no expert,
exchanges that are kept and run beside another microbatch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..scenario.refusal import NotSupported

if TYPE_CHECKING:
    from ..scenario.models import Scenario


def refuse_operators_of_experts(scenario: Scenario) -> None:
    """Refuse torch's own operators on experts' rows where rows are exchanged between ranks: these operators
    know of no exchange."""
    par, operators = scenario.parallelism, scenario.software.kernels.expert_operators
    if scenario.model.moe and operators != "library" and par.ep * par.etp > 1:
        raise NotSupported(
            "software.kernels.expert_operators",
            f"{operators} is operators of torch's on the experts of one rank, but ep {par.ep} and etp"
            f" {par.etp} spread experts over ranks; set expert_operators: library",
        )


def refuse_gathered_tokens(scenario: Scenario) -> None:
    """Refuse tokens that are gathered from more ranks than share an expert (torchtitan parallel_dims.py,
    _validate)."""
    par, gathers = scenario.parallelism, scenario.software.exchange.experts_gather_tokens
    if scenario.model.moe and gathers and par.etp not in (1, par.tp):
        fix = f"etp {par.etp} beside tp {par.tp}; set etp to 1 or {par.tp}, or this to false"
        raise NotSupported("software.exchange.experts_gather_tokens", fix)


def refuse_replayed_exchanges(scenario: Scenario) -> None:
    """Refuse exchanges that a recomputation takes from the forward, where nothing is recomputed with them, or
    where they run beside layers of another microbatch."""
    exchange, recompute = scenario.software.exchange, scenario.training.recompute
    if not exchange.replays_exchanges or scenario.model.moe is None or scenario.parallelism.ep == 1:
        return
    field = "software.exchange.replays_exchanges"
    if recompute != "full" and getattr(recompute, "kind", None) != "full":
        raise NotSupported(field, "whole layers that are recomputed replay exchanges; set recompute to full")
    if exchange.moe_a2a_overlap:
        raise NotSupported(
            field, "exchanges that are replayed run beside no other microbatch (moe_a2a_overlap)"
        )
