"""Checkpoints of whole layers by torch.utils.checkpoint, which are reentrant or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .settings import Settings


def put_layer_checkpoints(
    settings: Settings, names: Sequence[str], *, reentrant: str, unless_told: bool, default: str
) -> None:
    """Puts down whether layers run again, by the first of ``names`` that is set, and whether as a whole.

    ``reentrant`` is the setting's name for checkpoints that run all of a layer again; others stop at what
    backward last asks for (torch.utils.checkpoint, early_stop). ``unless_told``: whether they are reentrant
    where it is not set. ``default`` says whose defaults hold.
    """
    again = settings.flag(*names)
    settings.put("training.recompute", "full" if again else "none", *names, default=f"{default}: off")
    if again:
        settings.put(
            "software.kernels.recompute_stops_early",
            not settings.flag(reentrant, default=unless_told),
            reentrant,
            default=f"{default}: {'' if unless_told else 'not '}reentrant",
        )
