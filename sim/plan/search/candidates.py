"""The layouts of a search with all that is known of each before any replay, as arrays.

Knows what a space and its screening give, and the scenario that both began with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ....hardware.quantities import HOUR_S
from ...scenario.machine import cluster_of
from ...scenario.price import price_of
from ...scenario.refusal import NotSupported
from ...scenario.schedules import traits_of
from ...scenario.sharding import sharding_rule

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...scenario.models import Scenario
    from ..base_scenarios import RefusedValues

SHORT_GROUPS = 4
"""Groups of as many microbatches as pipeline ranks: about as many run in a step that is shortened."""

DETAIL = 1
"""Actions that take as long as a layer whose collectives share the network with messages, which is replayed
op by op: gathers of parameters and reductions of each microbatch (such a step is seldom steady), context
parallelism across domains. Of 274 replays of plans of 70B, 175B and 405B seconds follow actions best so."""

BESIDES = 100
"""What a replay takes besides actions, counted in these."""


class Layouts(Protocol):
    """A space: legal layouts by number, with fields as ``columns``; ``refused`` counts others by reason.
    What is no scenario in any layout is ``left_out``.

    ``bases`` are the scenario with each combination of fields that are no layout's, ``base`` which each has.
    ``own`` is the number of the scenario's own layout, None where it is not among them; ``twin`` that of one
    which is the same to the simulator. ``scenario_of`` is what people get to see of one, ``replayed`` what
    workers replay. ``lighter`` is for each that of one whose bounds by actions are bounds
    of it, too.
    """

    @property
    def bases(self) -> tuple[Scenario, ...]: ...
    @property
    def base(self) -> NDArray[np.int64]: ...
    @property
    def columns(self) -> Mapping[str, NDArray[Any]]: ...
    @property
    def refused(self) -> Mapping[str, int]: ...
    @property
    def left_out(self) -> tuple[RefusedValues, ...]: ...
    @property
    def own(self) -> int | None: ...
    @property
    def lighter(self) -> NDArray[np.int64]: ...
    def __len__(self) -> int: ...
    def settings(self, i: int) -> dict[str, Any]: ...
    def scenario_of(self, i: int) -> Scenario: ...
    def replayed(self, i: int) -> Scenario: ...
    def twin(self, i: int) -> int: ...


class Screening(Protocol):
    """What a screening knows of each layout, by its number: the bytes that its fullest rank needs
    (``needed_bytes``) and has (``capacity_bytes``), and the seconds that no step of it is shorter than
    (``bound_s``)."""

    @property
    def needed_bytes(self) -> NDArray[np.float64]: ...
    @property
    def capacity_bytes(self) -> NDArray[np.float64]: ...
    @property
    def bound_s(self) -> NDArray[np.float64]: ...


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """``base`` is the scenario as given; ``fit_probability`` that of each layout."""

    base: Scenario
    layouts: Layouts
    bounds: Screening
    fit_probability: NDArray[np.float64]

    def column(self, field: str, value: float) -> NDArray[np.float64]:
        """A field of every layout, ``value`` where they do not differ in it."""
        found = self.layouts.columns.get(field)
        if found is None:
            return np.full(len(self.layouts), float(value))
        return np.asarray(found, dtype=np.float64)

    @cached_property
    def gpus(self) -> NDArray[np.float64]:
        return self.column("cluster.gpus", self.base.cluster.gpus)

    @cached_property
    def tokens_per_step(self) -> NDArray[np.float64]:
        training = self.base.training
        batch = self.column("training.global_batch", training.global_batch)
        return batch * self.column("training.seq_length", training.seq_length)

    @cached_property
    def replayed_actions(self) -> NDArray[np.float64]:
        """Actions of all pipeline ranks that a replay runs, as far as steps are shortened (brief/steady.py),
        and what it takes besides: what it costs goes with them.
        """
        parallel = self.base.parallelism
        gathers = self._of_each("parallelism.zero", parallel.zero, self._moves_shards) & (self._of("pp") > 1)
        whole = ~self._of_each("schedule", self.base.schedule, lambda name: bool(traits_of(name).filling))
        short = np.where(gathers | whole, self._groups, np.minimum(self._groups, SHORT_GROUPS))
        stages = self._of("pp") * self._of("vpp")
        layers = np.where(gathers | self.crossed, DETAIL * self.base.model.num_layers / stages, 0.0)
        return np.asarray(BESIDES + 2 * short * self._of("pp") * stages * (1.0 + layers))

    @cached_property
    def crossed(self) -> NDArray[np.bool_]:
        """Whether messages between the pipeline ranks of each layout share the network with the layers, whose
        context parallelism crosses NVLink domains."""
        sizes = self._of("tp") * self._of("cp")
        crosses = (self._of("cp") > 1) & (sizes > cluster_of(self.base.cluster).nvlink_domain)
        return np.asarray(crosses & (self._of("pp") > 1), dtype=bool)

    @cached_property
    def passes(self) -> NDArray[np.float64]:
        """How often actions of each layout run its layers, in forward passes: a backward pass is two, and one
        more where all is recomputed."""
        column = self.layouts.columns.get("training.recompute")
        again = self.base.training.recompute == "full" if column is None else column == "full"
        return np.where(again, 4.0, 3.0) * np.ones(len(self.layouts))

    @cached_property
    def bounded_actions(self) -> NDArray[np.float64]:
        """Actions that a bound by actions counts as (brief/floor.py); it knows no layers and goes through the
        whole step."""
        return np.asarray(BESIDES + 2 * self._groups * self._of("pp") ** 2 * self._of("vpp"))

    @cached_property
    def _groups(self) -> NDArray[np.float64]:
        """For each layout, its microbatches per pipeline rank."""
        training = self.base.training
        batch = self.column("training.global_batch", training.global_batch)
        micro = self.column("training.micro_batch", training.micro_batch)
        return np.asarray(batch / (micro * self._of("dp") * self._of("pp")))

    def _of(self, axis: str) -> NDArray[np.float64]:
        return self.column(f"parallelism.{axis}", getattr(self.base.parallelism, axis))

    def _of_each(self, field: str, value: Any, holds: Callable[[Any], bool]) -> NDArray[np.bool_]:
        """What ``holds`` for the value of a field of each layout, asked once for each value."""
        column = self.layouts.columns.get(field)
        if column is None:
            return np.full(len(self.layouts), holds(value))
        found = np.zeros(len(column), dtype=bool)
        for one in set(column.tolist()):
            found[column == one] = holds(one)
        return found

    def _moves_shards(self, zero: int) -> bool:
        """Whether pipelines of that ZeRO stage move shards beside their microbatches."""
        parallel = self.base.parallelism.model_copy(update={"zero": zero, "pp": 2})
        try:
            return sharding_rule(self.base.model_copy(update={"parallelism": parallel})) is not None
        except NotSupported:
            return False

    @cached_property
    def dollars_per_s(self) -> NDArray[np.float64]:
        """For each layout, the price of all its GPUs as stated or listed for their kind, in dollars per
        second; nan without one."""
        prices = [price_of(base.cluster) for base in self.layouts.bases]
        each = np.array([np.nan if price is None else price.amount for price in prices], dtype=np.float64)
        return self.gpus * each[self.layouts.base] / HOUR_S

    @cached_property
    def budget_tokens(self) -> NDArray[np.float64]:
        """Tokens that the whole run is to see; nan without such a budget."""
        budgets = [
            np.nan if base.training.tokens is None else base.training.tokens for base in self.layouts.bases
        ]
        return np.array(budgets, dtype=np.float64)[self.layouts.base]

    @cached_property
    def headroom_bytes(self) -> NDArray[np.float64]:
        """What the fullest rank leaves free."""
        return np.asarray(self.bounds.capacity_bytes - self.bounds.needed_bytes, dtype=np.float64)
