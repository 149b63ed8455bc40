"""Whole numbers of a configuration: what YAML calls 2048, 2e3 or 2048.0, but no text and no yes or no."""

from __future__ import annotations

from typing import Any

from pydantic import BeforeValidator

LARGEST = 10**12
"""No size of a model, a batch or a cluster is beyond it: a slip of the keyboard is."""


def _whole(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("a whole number is needed")
    if isinstance(value, float) and not value.is_integer():
        raise ValueError("a whole number is needed")
    if abs(value) > LARGEST:
        raise ValueError("a whole number up to 1e12 is needed")
    return int(value)


WholeNumber = BeforeValidator(_whole)
"""Annotation of an int field."""
