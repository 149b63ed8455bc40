"""Layouts whose stages and orders are the same: what is asked of a pipeline is asked once for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .in_flight import enough_microbatches
from .numbering import dense
from .tables import PIPELINE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .tables import Tables

    Codes = NDArray[np.int64]

_ORDERS = ("schedule_options.group", "schedule_options.memory_limit")


def alike_layouts(tables: Tables) -> list[Codes]:
    """The layouts of a base by pipeline, and by how many microbatches fill it."""
    number, rows = dense([*(tables.code(name) for name in (*PIPELINE, *_ORDERS)), _enough(tables)])
    order = np.argsort(number, kind="stable")
    return np.split(order, np.cumsum(np.bincount(number, minlength=len(rows)))[:-1])


def _enough(tables: Tables) -> Codes:
    """Microbatches of a step with the same memory, of each layout."""
    names = ("parallelism.pp", "parallelism.dp", "training.micro_batch", "schedule", "schedule_options.group")
    number, rows = dense([tables.code(name) for name in names])
    found = []
    for row in rows:
        draft = tables.draft(row)
        found.append(enough_microbatches(draft.schedule, draft.pipeline_shape))
    return np.array(found, dtype=np.int64)[number]
