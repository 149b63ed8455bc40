"""Known models by name, read from catalogue.yaml."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from ....hardware.catalogue import unknown_name
from .model import Model

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def get_model(name: str) -> Model:
    """The model of that name.

    Raises:
        ValueError: no such model; the message has the nearest name and all of them.
    """
    return Model(**catalogue_fields(name))


def catalogue_fields(name: str) -> dict[str, Any]:
    """What the catalogue says of a model, without the defaults that follow from it. Errors as above."""
    entries = _entries()
    if name not in entries:
        raise unknown_name("model", name, entries)
    return {"name": name, **{key: value for key, value in entries[name].items() if key != "source"}}


def model_names() -> tuple[str, ...]:
    """Every model, in the order of the catalogue."""
    return tuple(_entries())


@cache
def _entries() -> dict[str, dict[str, Any]]:
    text = files(__package__).joinpath("catalogue.yaml").read_text(encoding="utf-8")
    entries: dict[str, dict[str, Any]] = yaml.load(text, Loader=_LOADER)
    return entries
