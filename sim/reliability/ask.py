"""The main sentence of faults: load, build the plan, replicate, and ask what if."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..scenario.faults.faults import parse_fault
from .answers import Answers
from .planning.blocks import CampaignBlocks, blocks_of
from .planning.build_plan import build_plan
from .planning.estimate import check_replications
from .study.optimum import find_optimum
from .study.study import Progress, study
from .study.variants import all_worths

if TYPE_CHECKING:
    from ..scenario.faults.bare import Bare
    from ..scenario.models import Scenario


def ask(
    source: str | Scenario | Bare,
    changes: Sequence[str] = (),
    *,
    lines: Sequence[str] = (),
    replications: int | None = None,
    what_if: bool = False,
    max_events: int | None = None,
    progress: Progress | None = None,
) -> Answers:
    """Simulate the campaign of a scenario, by name, file or as loaded.

    Args:
        changes: as ``--set`` takes them; only where ``source`` is a name or a file.
        lines: further faults, as ``--fault`` takes them.
        what_if: also what each kind of fault costs, each mitigation gains, and the best interval.
        max_events: of the replications, by an estimate that is made before; None: an hour's worth.

    Raises:
        ValueError: what a scenario, a fault or their combination refuses.
    """
    from ..scenario.checked import checked_campaign
    from ..scenario.load import load_campaign

    if replications is not None and (isinstance(replications, bool) or replications < 1):
        raise ValueError(f"replications {replications!r}: a whole number of 1 or more is needed")
    say = progress or (lambda _: None)
    say("building the campaign")
    blocks = blocks_of(
        load_campaign(source, changes) if isinstance(source, str) else checked_campaign(source)
    )
    blocks = with_faults(blocks, lines)
    plan = build_plan(blocks)
    found = study(plan, blocks.run, replications=replications, max_events=max_events, progress=progress)
    if not what_if:
        return Answers(blocks=blocks, study=found)
    variants = [plan] * (1 + 2 * len(plan.sources))  # about as many worlds are asked about
    check_replications(variants, len(found.outcomes), max_events)
    return Answers(
        blocks=blocks,
        study=found,
        worths=tuple(all_worths(found, progress)),
        optimum=find_optimum(found, progress=progress),
    )


def with_faults(blocks: CampaignBlocks, lines: Sequence[str]) -> CampaignBlocks:
    """The blocks with further faults. ValueError for a target that the cluster does not have."""
    events = tuple(parse_fault(line) for line in lines)
    for line, event in zip(lines, events, strict=True):
        try:
            blocks.machine.counts.check(event.where)
        except ValueError as error:
            raise ValueError(f"--fault {line!r}: {error}") from None
    faults = blocks.faults.model_copy(update={"events": (*blocks.faults.events, *events)})
    return replace(blocks, faults=faults)
