"""Every example in a docstring does what it shows. pytest's own collector would import the package twice."""

from __future__ import annotations

import doctest
import importlib

import pytest
from checkout import modules

WITH_EXAMPLES = [name for name, path in modules().items() if ">>> " in path.read_text(encoding="utf-8")]


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_in_docstrings_hold(name: str) -> None:
    outcome = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert outcome.attempted > 0
    assert outcome.failed == 0
