"""An inconsistency between fields, and the arithmetic of saying what would be valid."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...hardware.explain import FieldPath, dotted

_MOST_CHOICES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What is wrong, at the field that its writer is most likely to change. ``alone``: whatever other fields
    are.
    """

    path: FieldPath
    message: str
    alone: bool = False

    def __str__(self) -> str:
        return f"{dotted(self.path)}: {self.message}"


class Inconsistent(ValueError):
    """Fields that contradict one another; ``findings`` has each of them."""

    def __init__(self, findings: list[Finding]) -> None:
        super().__init__("; ".join(str(finding) for finding in findings))
        self.findings = tuple(findings)


def divisors(number: int) -> list[int]:
    """Divisors of a positive number, ascending."""
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return sorted({*small, *(number // d for d in small)})


def choices(numbers: Iterable[object]) -> str:
    """``1, 2, 4 or 8``; of a long list the first ones."""
    texts = [str(number) for number in numbers]
    if len(texts) > _MOST_CHOICES:
        return ", ".join(texts[:_MOST_CHOICES]) + ", ..."
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} or {texts[-1]}"


def neighbours(number: int, step: int) -> str:
    """The multiples of ``step`` on both sides of ``number``, as ``1920 or 2048``."""
    below = number // step * step
    return choices([multiple for multiple in (below, below + step) if multiple > 0])
