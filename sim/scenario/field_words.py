"""How the types and defaults of fields read in words, for the page of fields and for editors.

Knows pydantic's annotations and our quantities; not which fields there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types as at
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from ...hardware.fields import OneOf, Quantity
from ...hardware.limits import LARGEST
from ...hardware.quantities import format_quantity
from .faults.fields import Every

BlockWords = Callable[[type[BaseModel]], str]
"""What stands for a block inside a type."""

FOLLOWS = {"name", "schedule", "gpus_per_node", "interconnect", "dp", "parallelism", "num_query_groups"}
FOLLOWS |= {"kv_channels", "attention", "norm", "position", "biases", "dropout"}
"""Fields that a document may leave out, although a scenario has them: they follow from others."""

_WHAT = {"seconds": "duration", "bytes_per_s": "rate", "bytes": "size"}


def type_words(annotation: Any, metadata: Any, block: BlockWords) -> str:
    """A type as a reader of YAML would say it."""
    if get_origin(annotation) is Annotated:
        inner, *more = get_args(annotation)
        return type_words(inner, [*more, *metadata], block)
    if get_origin(annotation) in (Union, UnionType):
        return " or ".join(
            type_words(one, metadata, block) for one in get_args(annotation) if one is not NoneType
        )
    if get_origin(annotation) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(annotation))
    if get_origin(annotation) is tuple:
        parts = [one for one in get_args(annotation) if one is not Ellipsis]
        inside = [type_words(one, (), block) for one in parts]
        return f"list, each {inside[0]}" if len(set(parts)) == 1 else f"[{', '.join(inside)}]"
    if annotation is Every:
        return "duration or `50 steps`"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return block(annotation)
    return _scalar(annotation, list(_flat(metadata)))


def _flat(metadata: Any) -> Iterator[Any]:
    for one in metadata:
        if isinstance(one, FieldInfo):
            yield from _flat(one.metadata)
        else:
            yield one


def _scalar(annotation: Any, metadata: list[Any]) -> str:
    for one in metadata:
        if isinstance(one, OneOf):
            return ", ".join(f"`{choice}`" for choice in one.names())
        if isinstance(one, Quantity):
            return f"{_WHAT.get(one.dimension, one.dimension)}, {one.range}"
    if annotation is bool:
        return "`true` or `false`"
    if annotation is str:
        return "text"
    bounds = []
    for kind, words in ((at.Ge, "from {}"), (at.Gt, "above {}"), (at.Le, "to {}"), (at.Lt, "below {}")):
        found = next((one for one in metadata if isinstance(one, kind)), None)
        limit = None if found is None else getattr(found, kind.__name__.lower())
        if limit is not None and limit != LARGEST:
            bounds.append(words.format(f"{limit:,}" if isinstance(limit, int) else f"{limit:g}"))
    name = "whole number" if annotation is int else "number"
    return " ".join([f"{name},", *bounds]) if bounds else name


def default_words(name: str, info: FieldInfo) -> str:
    """The default of a field in words: its value, ``required``, or ``follows`` where other fields decide
    it."""
    if name in FOLLOWS and info.is_required():
        return "follows"
    if info.is_required():
        return "required"
    value = info.default
    quantity = next((one for one in _flat(info.metadata) if isinstance(one, Quantity)), None)
    if value is None or value in ("", ()):
        return ""
    if isinstance(value, BaseModel):
        return "its own" if value == type(value).model_construct() else _given(value)
    if quantity and isinstance(value, float):
        return f"`{format_quantity(value, quantity.dimension)}`"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value:.15g}`" if isinstance(value, float) else f"`{value}`"


def _given(value: BaseModel) -> str:
    """What a block says where it is left out."""
    said = value.model_dump(mode="json", exclude_unset=True, exclude_none=True)
    return f"`{said}`" if said else "its own"
