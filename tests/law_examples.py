"""How many examples a law is tried on that takes long for each."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import settings


def examples(number: int, **more: Any) -> settings:
    """Settings with so many examples; where tests explore (conftest.py), with as many as they do there."""
    if os.environ.get("HYPOTHESIS_PROFILE", "repeatable") == "repeatable":
        return settings(max_examples=number, **more)
    return settings(**more)
