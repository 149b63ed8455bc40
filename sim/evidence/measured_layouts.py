"""How far the predictions of two layouts of one job are off against each other, as measured sweeps show.

Knows measured_layouts.yaml, which ``stepsim calibrate residuals`` writes. Errors that two layouts have in
common cancel: those of the curves of kernels and collectives, which the interval counts, and everything that
belongs to one value of one field, such as what tensor parallelism over eight GPUs does to kernels. Two
layouts that differ in one field are off against each other by little, and by more with each further field.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from ...hardware.files.shipped_yaml import load_shipped

FILE = "measured_layouts.yaml"

FOLLOWS = ("parallelism.dp",)
"""Fields that follow from the others and are not counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredLayouts:
    """``field_sigma`` is the spread that each field in which two layouts differ adds to the logarithm of the
    ratio of their step times (Student's t with four degrees of freedom); ``source`` says where it is from."""

    field_sigma: float
    source: str


@cache
def measured_layouts() -> MeasuredLayouts:
    """What measured sweeps say, from the file of the package (FILE)."""
    text = files(__package__).joinpath(FILE).read_text(encoding="utf-8")
    return layouts_from_document(load_shipped(text))


def layouts_from_document(document: Mapping[str, Any]) -> MeasuredLayouts:
    """Measured layouts read from a document as ``stepsim calibrate residuals`` writes it."""
    return MeasuredLayouts(field_sigma=float(document["field_sigma"]), source=document["source"])


def differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> int:
    """In how many fields two layouts differ.

    >>> differing({"parallelism.tp": 1, "parallelism.dp": 8}, {"parallelism.tp": 2, "parallelism.dp": 4})
    1
    """
    return sum(value != other.get(name) for name, value in one.items() if name not in FOLLOWS)
