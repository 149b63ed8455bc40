"""How differently the ranks of a layout are placed, where that is known without looking at each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..lowering.lower import talking_ranks
from ..lowering.placements import Placements, distinct_placements
from ..scenario.schedules import schedule_named

if TYPE_CHECKING:
    from ...hardware.cluster import Cluster
    from ..lowering.placed_groups import PlacedGroups
    from ..scenario.models import Scenario

_SIZES = ("tp", "cp", "pp", "dp", "ep", "etp", "cp_a2a", "fsdp_shard_size")


def ways_placed(draft: Scenario, placed: PlacedGroups, cluster: Cluster) -> Placements:
    """The ways in which the ranks of a layout are placed.

    Where sizes are powers of two, and so are domains, groups fill these evenly, and all ranks are alike.
    """
    sizes = (*(getattr(draft.parallelism, name) or 1 for name in _SIZES),)
    powers = (*sizes, cluster.nvlink_domain, cluster.gpus_per_node)
    if draft.cluster.placement is None and all(size & (size - 1) == 0 for size in powers):
        return Placements(of_rank=np.zeros(0, dtype=np.int64), first=(0,), groups={})
    talking = talking_ranks(schedule_named(draft.schedule), draft.pipeline_shape)
    return distinct_placements(draft, placed, talking=talking)
