"""docs/scenario.md: every field of a scenario file with its type, range and default, read off the models.

What is said beside the tables is in page_texts.yaml.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files
from typing import Any, get_args

from pydantic import BaseModel

from ...hardware.files.shipped_yaml import load_shipped
from .aliases import ALIASES, SHORT_FORMS
from .faults.fields import Every
from .field_words import default_words, type_words
from .models import Scenario


def scenario_page() -> str:
    """The page in Markdown."""
    texts = load_shipped(files(__package__).joinpath("page_texts.yaml").read_text(encoding="utf-8"))
    parts = [texts["begin"].strip()]
    for path, model in blocks():
        parts.append(f"## {path}" if path else "## The file")
        parts.append(_sentence(model))
        parts.append(_table(model))
        if path in texts["after"]:
            parts.append(texts["after"][path].strip())
    parts += ["## Other names", texts["aliases"].strip(), _aliases(), texts["short_forms"].strip(), _shorts()]
    return "\n\n".join(parts) + "\n"


def blocks() -> Iterator[tuple[str, type[BaseModel]]]:
    """Every block with the path where it first stands, in the order of a file; each once."""
    Scenario.model_rebuild()  # so that it knows the models of all blocks
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
        cells = (
            f"`{name}`",
            type_words(info.annotation, info.metadata, _link),
            default_words(name, info),
            meaning,
        )
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def _link(model: type[BaseModel]) -> str:
    return f"[block](#{_anchor(model)})"


def _anchor(model: type[BaseModel]) -> str:
    path = next(path for path, one in blocks() if one is model)
    return re.sub(r"[^a-z0-9_-]", "", path.lower()) if path else "the-file"


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
