"""Known models by name, read from catalogue.yaml."""

from __future__ import annotations

from typing import Any

from ....hardware.catalogue import Table
from .model import Model

MODELS: Table[dict[str, Any]] = Table("model", __package__, "catalogue.yaml", dict)


def get_model(name: str) -> Model:
    """The model of that name.

    Raises:
        ValueError: no such model; the message has the nearest name and all of them.
    """
    return Model(**catalogue_fields(name))


def catalogue_fields(name: str) -> dict[str, Any]:
    """What the catalogue says of a model, without the defaults that follow from it. Errors as above."""
    return {key: value for key, value in MODELS.get(name).items() if key != "source"}


def model_names() -> tuple[str, ...]:
    """Every model, in the order of the catalogue."""
    return MODELS.names()
