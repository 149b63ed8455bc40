"""What all pipeline ranks of a step have in common while their programs are written, each thing once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..program.program import RepeatedBlocks
from .actions import between_waits
from .common_to_layouts import SearchCache

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...schedules.orders.action import Action, ActionKind
    from ..network.transfer import Transfer
    from .action_pieces import CountedBlocks
    from .actions import Owned
    from .activation_offload import ActivationCopies
    from .layers.stages import Stage
    from .sharded_actions import ShardedActions


@dataclass
class CommonToRanks:
    """What the programs of all ranks of a step have in common, made once and shared."""

    sharding: ShardedActions | None = None
    copies: ActivationCopies | None = None
    repeated_blocks: dict[CountedBlocks, tuple[RepeatedBlocks, ...]] = field(default_factory=dict)
    rows: dict[tuple[object, ...], Owned] = field(default_factory=dict)
    transfers: dict[Transfer, Transfer] = field(default_factory=dict)
    tags: dict[Action, str] = field(default_factory=dict)
    cache: SearchCache = field(default_factory=SearchCache)

    def row_of(self, kind: ActionKind, stage: Stage, make: Callable[[], Owned]) -> Owned:
        """The blocks of an action of that kind on a stage, made for the first of all stages that hold the
        same. The plan has its runs of layers for as long as this lasts."""
        key = kind, id(stage.runs), stage.embedding, stage.head, stage.loss, stage.scales
        found = self.rows.get(key)
        if found is None:
            found = self.rows[key] = make()
        return found

    def repeated(self, row: CountedBlocks) -> tuple[RepeatedBlocks, ...]:
        """The blocks of ``row``, in pieces where the host waits in between."""
        found = self.repeated_blocks.get(row)
        if found is None:
            pieces = tuple(map(RepeatedBlocks, between_waits(row)))
            found = self.repeated_blocks[row] = pieces
        return found
