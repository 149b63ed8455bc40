"""The lines over a timeline or a topology: what is shown, of what, and what came out."""

from __future__ import annotations

from collections.abc import Iterator

from . import palette
from .svg import shortened, text


def headings(left: float, room: float, title: str, subject: str, outcome: str = "") -> Iterator[str]:
    """Up to three lines from ``left``, cut where they would be wider than ``room`` pixels."""
    yield text(left, 32, shortened(title, 19, room), font_size=19, font_weight="bold", fill=palette.INK)
    yield text(left, 54, shortened(subject, 13, room), font_size=13, fill=palette.FAINT_INK)
    if outcome:
        yield text(left, 75, shortened(outcome, 13, room), font_size=13, fill=palette.INK)
