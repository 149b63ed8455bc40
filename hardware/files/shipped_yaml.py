"""YAML that ships with the package: read without limits, since nobody else wrote it.

Knows PyYAML's loaders, which follow YAML 1.1: 4e-3 is text there, and whoever reads numbers makes it one.
What users write goes through yaml_text.py.
"""

from __future__ import annotations

from typing import Any

import yaml

_LOADER: Any = getattr(
    yaml, "CSafeLoader", yaml.SafeLoader
)  # libyaml's where it is there: six times as quick


def load_shipped(text: str) -> Any:
    """The document in ``text`` as dicts, lists, text, numbers, dates, booleans and None."""
    return yaml.load(text, Loader=_LOADER)
