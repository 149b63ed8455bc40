"""The experts of one layer that a rank holds, and how many rows reach them.

Rows are copies of tokens: each token goes to ``topk`` experts. Knows sizes; what runs is in
moe.py and expert_work.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...network.token_exchange import hit_probability, visited_in_turn
from .routing import busiest_share, distinct_loads, experts_with_rows

if TYPE_CHECKING:
    from ...scenario.model.model import Model, Moe
    from ...scenario.models import Scenario


@dataclass(frozen=True, kw_only=True)
class Experts:
    """The experts of one layer on a rank: ``held`` of ``total``, each ``ffn`` wide (divided by etp).

    ``shared_ffn`` is the width of the shared experts (divided by tp). ``copies``: how often each token is
    sent, which is topk or what a capacity pads or cuts that to. ``load``: this rank's rows over the mean of
    all ranks (routing.py); ``busiest``: the rows of its fullest expert over the mean of its experts;
    ``idle``: how many of its experts have no rows. ``dropless``: there is no capacity, so that the number of
    rows is unknown until the router has run. ``in_groups``: the router first chooses groups of experts.
    ``in_turn``: each token goes to the experts that follow those of the token before.
    ``gathered``: tensor-parallel ranks whose tokens the layer gathers before its router (1: none); the ranks
    that share an expert then each have all rows from the beginning, and exchange none among themselves.
    ``loss_ranks``: tensor-parallel ranks that add up counts of tokens for the router's own loss (1: none).
    """

    total: int
    held: int
    topk: int
    ffn: int
    shared_ffn: int
    ep: int
    etp: int
    copies: float
    load: float = 1.0
    busiest: float = 1.0
    idle: int = 0
    dropless: bool = True
    in_groups: bool = False
    in_turn: bool = False
    gathered: int = 1
    loss_ranks: int = 1

    @property
    def turns(self) -> int:
        """Iterations of the loop over this rank's experts: one for each that has rows."""
        return self.held - self.idle

    @property
    def tensor_parallel(self) -> bool:
        """Whether tensor-parallel ranks exchange tokens, or parts of them, beside a layer's experts."""
        return self.shared_ffn > 0 or self.gathered > 1

    @property
    def senders(self) -> int:
        """Ranks whose tokens a rank sends: its own, or those of all with which it shares experts."""
        return self.etp if self.gathered > 1 else 1

    def sent(self, tokens: int) -> float:
        """Rows that a rank with ``tokens`` tokens sends out, those to itself included."""
        return tokens * self.copies * self.senders

    def rows(self, tokens: int) -> float:
        """Rows that this rank's experts receive if every rank has ``tokens`` tokens."""
        return tokens * self.copies * self.etp * self.load

    def visited(self) -> float:
        """Ranks that a token goes to in the mean, if any expert is as likely as the others, or as they
        follow one another."""
        if self.in_turn:
            return sum(visited_in_turn(self.total, self.topk, (1,) * self.ep))
        return self.ep * hit_probability(self.total, self.held, self.topk)

    def rows_each(self, tokens: int) -> int:
        """Rows of one expert."""
        return max(1, round(self.rows(tokens) / self.held))


def copies_of(moe: Moe) -> float:
    """How often each token is sent to experts: topk times, or as often as a capacity pads or cuts that to."""
    return moe.topk * (moe.capacity_factor or 1.0)


def experts_of_model(model: Model) -> Experts | None:
    """All experts of a model on one rank, each token sent once to each that it goes to; None if dense."""
    moe = model.moe
    if moe is None:
        return None
    return Experts(
        total=moe.num_experts,
        held=moe.num_experts,
        topk=moe.topk,
        ffn=moe.expert_ffn_hidden_size,
        shared_ffn=moe.shared_expert_ffn_hidden_size,
        ep=1,
        etp=1,
        copies=moe.topk,
    )


def experts_of(scenario: Scenario) -> Experts | None:
    """The share of the rank with the most rows; None for a dense model."""
    moe, par = scenario.model.moe, scenario.parallelism
    if moe is None:
        return None
    return Experts(
        total=moe.num_experts,
        held=moe.num_experts // par.ep,
        topk=moe.topk,
        ffn=moe.expert_ffn_hidden_size // par.etp,
        shared_ffn=moe.shared_expert_ffn_hidden_size // par.tp,
        ep=par.ep,
        etp=par.etp,
        copies=copies_of(moe),
        load=distinct_loads(scenario)[0],
        busiest=busiest_share(scenario),
        idle=moe.num_experts - experts_with_rows(scenario) if par.ep == 1 else 0,
        dropless=moe.capacity_factor is None,
        in_groups=moe.node_limit is not None,
        in_turn=scenario.training.routing == "in_turn",
        gathered=par.tp if scenario.software.exchange.experts_gather_tokens else 1,
        loss_ranks=par.tp if scenario.software.exchange.router_loss else 1,
    )
