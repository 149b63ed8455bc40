"""How far a host was ahead of its GPU: what it had issued of its blocks that had not run yet.

A host issues one op after the other, and waits where an op makes it wait. Its work and the GPU's are laid
side by side on one axis, the host's time for issuing blocks; inside repeated blocks both are taken to go
evenly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..program.program import RepeatedBlocks
from .scope import issue_times

if TYPE_CHECKING:
    from .record import Record


def host_lead_s(record: Record, r: int) -> float:
    """The most that the host of class ``r`` was ahead of its compute stream, in seconds of its work.

    Looked at whenever repeated blocks of a forward have been issued: until then a lead grows, and so does
    what is kept. What a backward leaves in flight finds place in what it has freed.
    """
    import numpy as np

    ops, start, end = record.programs.classes[r].ops, record.start[r], record.end[r]
    repeated_blocks = [i for i, op in enumerate(ops) if isinstance(op.work, RepeatedBlocks)]
    if not repeated_blocks:
        return 0.0
    issued = [(end[sync] if sync >= 0 else 0.0) + offset for sync, offset in issue_times(ops, last=True)]
    work_s = np.concatenate([[0.0], np.cumsum([ops[i].host_s for i in repeated_blocks])])
    times = np.array([(start[i], end[i]) for i in repeated_blocks]).ravel()
    done_s = np.interp(
        [issued[i] for i in repeated_blocks], times, np.column_stack([work_s[:-1], work_s[1:]]).ravel()
    )
    leads_s = work_s[1:] - done_s
    forwards = [not ops[i].action or "F" in ops[i].action for i in repeated_blocks]
    return float(leads_s[forwards].max(initial=0.0))
