"""Known models by name, read from catalogue.yaml."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from ....hardware.catalogue import Table, unknown_name
from .model import Model

MODELS: Table[dict[str, Any]] = Table("model", __package__, "catalogue.yaml", dict)

_ABOUT = ("source", "called")
"""What an entry says of itself; all else is the model's."""

_ENDINGS = (
    "-2507", "-instruct", "-hf", "-chat", "-it", "-bnb-4bit", "-unsloth", "-bf16", "-fp8", "-base", "-v0.1"
)  # fmt: skip
"""Of names on huggingface.co: what says nothing of the shape. Several may follow one another."""

_MAKER = "meta-"
"""Before a name there, too: meta-llama-3-8b."""


def get_model(name: str) -> Model:
    """The model of that name.

    Raises:
        ValueError: no such model; the message has the nearest name and all of them.
    """
    return Model(**catalogue_fields(name))


def catalogue_fields(name: str) -> dict[str, Any]:
    """What the catalogue says of a model, without the defaults that follow from it. Errors as above."""
    called = model_called(name)
    if called is None:
        raise unknown_name(MODELS.what, name, MODELS.names())
    return {key: value for key, value in MODELS.get(called).items() if key not in _ABOUT}


def model_names() -> tuple[str, ...]:
    """Every model, in the order of the catalogue."""
    return MODELS.names()


def model_called(name: str) -> str | None:
    """The catalogue's model that a name means, as people and huggingface.co write it; None where it has none.

    >>> model_called("meta-llama/Llama-3.1-70B-Instruct"), model_called("llama3_8b"), model_called("llama4")
    ('llama3-70b', 'llama3-8b', None)
    """
    if name in MODELS.records():
        return name
    last = name.strip().rstrip("/").rpartition("/")[2].lower().removeprefix(_MAKER)
    while shorter := next((last.removesuffix(one) for one in _ENDINGS if last.endswith(one)), ""):
        last = shorter
    return _by_words(MODELS.files).get(_words(last))


@lru_cache(maxsize=1)
def _by_words(_files: tuple[object, ...]) -> dict[str, str]:
    """The catalogue's name of every name of a model, both without separators."""
    return {
        _words(name): model
        for model, entry in MODELS.records().items()
        for name in (model, *entry.get("called", ()))
    }


def _words(name: str) -> str:
    """A name without what people set between its words. A dot stays: 7.5b is not 75b."""
    return name.lower().translate({ord(sign): None for sign in "-_ "})
