"""Whole numbers of a configuration: what YAML calls 2048, 2e3 or 2048.0, but no text and no yes or no."""

from __future__ import annotations

from typing import Any

from pydantic import BeforeValidator


def _whole(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("a whole number is needed")
    if isinstance(value, float) and not value.is_integer():
        raise ValueError("a whole number is needed")
    return int(value)


WholeNumber = BeforeValidator(_whole)
"""Annotation of an int field."""
