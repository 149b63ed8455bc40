"""The JSON Schema of scenario files as editors want it: names to choose from, and every field in words.

Adds to schema.py what checks do not need: type, unit and default in the description of a field, and names of
hardware, models and software as enums, beside which files and short names of one's own stay legal.
"""

from __future__ import annotations

from typing import Any

from ...hardware.gpus import gpu_names
from ...hardware.interconnect import interconnect_names
from .documents import scenario_names
from .field_words import default_words, type_words
from .model.catalogue import model_names
from .optimizers import optimizer_names
from .page import blocks
from .schema import json_schema
from .software.called import framework_names
from .software.presets import software_names

FILE = "scenario.schema.json"
"""Its name beside the shipped scenarios, which name it in their first line."""

_OWN_FILE = r"\.(ya?ml|json)$|/"


def editor_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of a scenario document, for editors."""
    schema = json_schema()
    definitions = {**schema["$defs"], "Scenario": schema}
    for _, model in blocks():
        block = definitions[model.__name__]
        for name, info in model.model_fields.items():
            field = block["properties"][name]
            words = type_words(info.annotation, info.metadata, lambda _: "block").replace("`", "")
            field["description"] = _described(
                field["description"], words, default_words(name, info), named="enum" in str(field)
            )
    _add_names(definitions)
    return schema


def _described(meaning: str, words: str, default: str, *, named: bool) -> str:
    """What a field means, with its type and unit (not where an editor lists the names) and its default."""
    default = default.replace("`", "")
    beside = [] if named or "block" in words.split() else [words]
    if default == "required":
        beside.append(default)
    elif default and default not in ("follows", "its own") and "default:" not in meaning:
        beside.append(f"default: {default}")
    return f"{meaning} ({'; '.join(beside)})" if beside else meaning


def _add_names(definitions: dict[str, Any]) -> None:
    """Enums of what ships; where a file or a shorter name may stand, any text beside them."""
    scenario = definitions["Scenario"]["properties"]
    cluster = definitions["ClusterSpec"]["properties"]
    for field, names in (("gpu", gpu_names()), ("interconnect", interconnect_names())):
        forms = cluster[field].pop("oneOf")
        described = [form for form in forms if "$ref" in form]
        cluster[field]["anyOf"] = [_enum(names), {"type": "string"}, *described]
    definitions["OwnGpu"]["properties"]["extends"]["anyOf"].insert(0, _enum(gpu_names()))
    own_file = {"type": "string", "pattern": _OWN_FILE}
    scenario["extends"] |= {"anyOf": [_enum(scenario_names()), own_file]}
    scenario["model"]["anyOf"][:1] = [_enum(model_names()), own_file]
    presets = (*software_names(), *framework_names())
    scenario["software"]["anyOf"][0] = _enum(presets)
    definitions["Model"]["properties"]["preset"] |= {"anyOf": [_enum(model_names()), own_file]}
    definitions["Software"]["properties"]["preset"] |= _enum(presets)
    definitions["Training"]["properties"]["optimizer"]["anyOf"][0] = _enum(optimizer_names())


def _enum(names: tuple[str, ...]) -> dict[str, Any]:
    return {"type": "string", "enum": list(names)}
