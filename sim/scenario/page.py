"""docs/scenario.md: every field of a scenario file with its type, range and default, read off the models.

Knows how types read in words. What is said beside the tables is in page_texts.yaml.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types as at
import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from ...hardware.fields import LARGEST, OneOf, Quantity
from ...hardware.quantities import format_quantity
from .aliases import ALIASES, SHORT_FORMS
from .faults.fields import Every
from .models import Scenario

_FOLLOWS = {"name", "schedule", "gpus_per_node", "interconnect", "dp", "parallelism", "num_query_groups"}
_FOLLOWS |= {"kv_channels", "attention", "norm", "position", "biases", "dropout"}
"""Fields that a document may leave out, although a scenario has them: they follow from others."""

_WHAT = {"seconds": "duration", "bytes_per_s": "rate", "bytes": "size"}


def scenario_page() -> str:
    """The page in Markdown."""
    texts = yaml.safe_load(files(__package__).joinpath("page_texts.yaml").read_text(encoding="utf-8"))
    parts = [texts["begin"].strip()]
    for path, model in _blocks():
        parts.append(f"## {path}" if path else "## The file")
        parts.append(_sentence(model))
        parts.append(_table(model))
        if path in texts["after"]:
            parts.append(texts["after"][path].strip())
    parts += ["## Other names", texts["aliases"].strip(), _aliases(), texts["short_forms"].strip(), _shorts()]
    return "\n\n".join(parts) + "\n"


def _blocks() -> Iterator[tuple[str, type[BaseModel]]]:
    """Every block with the path where it first stands, in the order of a file; each once."""
    seen: set[type[BaseModel]] = set()
    waiting: list[tuple[str, type[BaseModel]]] = [("", Scenario)]
    while waiting:
        path, model = waiting.pop(0)
        if model in seen or model is Every:
            continue
        seen.add(model)
        yield path, model
        inner = [
            (f"{path}.{name}".removeprefix("."), one)
            for name, info in model.model_fields.items()
            for one in _models(info.annotation)
        ]
        waiting = [*inner, *waiting] if path else inner


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)


def _sentence(model: type[BaseModel]) -> str:
    """What its docstring says, as one paragraph."""
    return " ".join((model.__doc__ or "").split()).replace("``", "`")


def _table(model: type[BaseModel]) -> str:
    lines = ["| field | type | default | meaning |", "|---|---|---|---|"]
    for name, info in model.model_fields.items():
        meaning = info.description or ""
        cells = (f"`{name}`", _words(info.annotation, info.metadata), _default(name, info), meaning)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def _words(annotation: Any, metadata: Any = ()) -> str:
    """A type as a reader of YAML would say it."""
    if get_origin(annotation) is Annotated:
        inner, *more = get_args(annotation)
        return _words(inner, [*more, *metadata])
    if get_origin(annotation) in (Union, UnionType):
        return " or ".join(_words(one, metadata) for one in get_args(annotation) if one is not NoneType)
    if get_origin(annotation) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(annotation))
    if get_origin(annotation) is tuple:
        parts = [one for one in get_args(annotation) if one is not Ellipsis]
        return (
            f"list, each {_words(parts[0])}" if len(set(parts)) == 1 else f"[{', '.join(map(_words, parts))}]"
        )
    if annotation is Every:
        return "duration or `50 steps`"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return f"[block](#{_anchor(annotation)})"
    return _scalar(annotation, list(_flat(metadata)))


def _anchor(model: type[BaseModel]) -> str:
    path = next(path for path, one in _blocks() if one is model)
    return re.sub(r"[^a-z0-9_-]", "", path.lower()) if path else "the-file"


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


def _default(name: str, info: FieldInfo) -> str:
    if name in _FOLLOWS and info.is_required():
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


def _aliases() -> str:
    rows = [
        f"| `{block}.{name}` | `{'.'.join((block, *path))}` |"
        for block, names in ALIASES.items()
        for name, path in names.items()
        if block != "software"
    ]
    return "\n".join(["| written | means |", "|---|---|", *rows])


def _shorts() -> str:
    rows = [f"| `{block}: text` | `{block}: {{{key}: text}}` |" for block, key in SHORT_FORMS.items()]
    return "\n".join(["| written | means |", "|---|---|", *rows])
