"""Groups of layouts with the same stages and orders, so that a pipeline is worked out once for all of
them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...scenario.schedules import traits_of
from .in_flight import enough_microbatches
from .numbering import dense
from .tables import PIPELINE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .tables import ScreenTables

    Codes = NDArray[np.int64]

_ORDERS = (
    "schedule_options.group",
    "schedule_options.memory_limit",
    "training.activation_offload",
    "software.exchange.moe_a2a_overlap",
)


def alike_layouts(tables: ScreenTables, wanted: Codes) -> list[Codes]:
    """The ``wanted`` layouts of a base, grouped by pipeline and by how many microbatches fill it.

    Where a schedule weighs costs, layouts of one group have these costs in common too.
    """
    number, rows = dense(alike_codes(tables))
    order = wanted[np.argsort(number[wanted], kind="stable")]
    parts = np.split(order, np.cumsum(np.bincount(number[wanted], minlength=len(rows)))[:-1])
    return [part for part in parts if len(part)]


def alike_codes(tables: ScreenTables) -> list[Codes]:
    """Codes by layout; two layouts are of one group when all their codes are equal."""
    spread = np.minimum(tables.space.columns["parallelism.ep"][tables.rows], 2)
    weighs = np.array([traits_of(name).uses_costs for name in tables.space.values["schedule"]])
    both = tables.layer * (tables.group.max(initial=0) + 1) + tables.group + 1
    costs = np.where(weighs[tables.code("schedule")], both, 0)
    return [*(tables.code(name) for name in (*PIPELINE, *_ORDERS)), spread, _enough(tables), costs]


def _enough(tables: ScreenTables) -> Codes:
    """For each layout, the fewest microbatches of a step that takes the same memory."""
    names = ("parallelism.pp", "parallelism.dp", "training.micro_batch", "schedule", "schedule_options.group")
    number, rows = dense([tables.code(name) for name in names])
    found = []
    for row in rows:
        draft = tables.draft(row)
        found.append(enough_microbatches(draft.schedule, draft.pipeline_shape))
    return np.array(found, dtype=np.int64)[number]
