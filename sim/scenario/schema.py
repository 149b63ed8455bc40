"""The JSON Schema of scenario files.

Knows how documents differ from the models: fields that follow from others may be left out, blocks
have short forms, fields have other names, quantities are text.
"""

from __future__ import annotations

import math
from typing import Any

from .aliases import ALIASES, RECOMPUTE
from .loss_scale import DEFAULTS
from .model.catalogue import model_names
from .models import Scenario
from .optimizers import optimizer_names
from .software.presets import software_names

_BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
"""What pydantic leaves in its own words where a field also has a validator."""

_DERIVED = {
    "Scenario": ("name", "schedule", "parallelism"),
    "ClusterSpec": ("gpus_per_node", "interconnect"),
    "Parallelism": ("dp",),
}
_BLOCKS = {
    "model": "Model",
    "parallelism": "Parallelism",
    "training": "Training",
    "published": "PublishedFigures",
    "software": "Software",
}


def json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of a scenario document."""
    schema = _plain(Scenario.model_json_schema(mode="validation"))
    definitions: dict[str, Any] = schema["$defs"]
    definitions["Scenario"] = {key: value for key, value in schema.items() if key != "$defs"}
    for name, fields in _DERIVED.items():
        definitions[name]["required"] = [key for key in definitions[name]["required"] if key not in fields]
    definitions["Model"]["required"] = []
    for block, names in ALIASES.items():
        _add_aliases(definitions, block, names)
    _add_presets(definitions)
    root = definitions.pop("Scenario")
    root["properties"]["extends"] = {
        "type": "string",
        "description": "a file or shipped scenario that this one changes",
    }
    whole = _required_without_base(root, definitions)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **root,
        "title": "stepsim scenario",
        **whole,
        "$defs": definitions,
    }


def _required_without_base(root: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """What a file must say where no other file says it, and where it is more than weeks of a given step.

    Taken out of the blocks: ``extends``, and a preset beside changed fields, may bring every one.
    """
    needed = {
        block: {"required": definitions[name]["required"]}
        for block, name in (("cluster", "ClusterSpec"), ("training", "Training"))
    }
    for definition in definitions.values():
        definition.pop("required", None)
    others = [{"required": ["extends"]}, {"required": ["step_time"]}]
    return {"if": {"anyOf": others}, "else": {"required": root.pop("required"), "properties": needed}}


def _plain(node: Any) -> Any:
    """The schema in the words of JSON Schema, without defaults for which JSON has no number."""
    if isinstance(node, list):
        return [_plain(one) for one in node]
    if isinstance(node, dict):
        return {_BOUNDS.get(key, key): _plain(value) for key, value in node.items()}
    return None if isinstance(node, float) and not math.isfinite(node) else node


def _add_aliases(definitions: dict[str, Any], block: str, names: dict[str, tuple[str, ...]]) -> None:
    definition = definitions["MeasuredNetwork" if "." in block else _BLOCKS[block]]
    required = definition.get("required", [])
    for alias, path in names.items():
        if len(path) == 1:
            definition["properties"][alias] = {
                **definition["properties"][path[0]],
                "description": f"another name of {path[0]}",
            }
            required = [key for key in required if key != path[0]]
        else:
            definition["properties"][alias] = {"description": f"another name of {'.'.join(path)}"}
    definition["required"] = required


def _add_presets(definitions: dict[str, Any]) -> None:
    """The text forms: ``model: llama3.1-405b``, ``software: megatron-core-2024``, ``fabric: fat-tree``."""
    properties = definitions["Scenario"]["properties"]
    for block, names in (("model", model_names()), ("software", software_names())):
        reference = properties[block].pop("$ref")
        definitions[reference.rsplit("/", 1)[1]]["properties"]["preset"] = {
            "type": "string",
            "description": "start from this one and change the fields given beside it",
        }
        texts = {"type": "string", "examples": list(names)}
        properties[block]["anyOf"] = [texts, {"$ref": reference}]
    fabric = definitions["ClusterSpec"]["properties"]["fabric"]
    kinds = definitions["FabricSpec"]["properties"]["kind"]["enum"]
    fabric["anyOf"] = [{"type": "string", "enum": kinds}, {"$ref": fabric.pop("$ref")}]
    for block, key in (("Scenario", "detection"), ("Scenario", "recovery"), ("Recovery", "restart_cost")):
        short = definitions[block]["properties"][key]
        reference = {"$ref": short.pop("$ref")} if "$ref" in short else None
        short["anyOf"] = [{"type": "string"}, *(short.get("anyOf") or [reference])]
    events = definitions["Faults"]["properties"]["events"]
    line = {"type": "string", "examples": ["gpu_throttle gpu/37 slow_factor=1.3"]}
    events["items"] = {"anyOf": [line, events["items"]]}
    definitions["Scenario"]["properties"]["faults"]["anyOf"].insert(0, events | {"default": None})
    placement = definitions["ClusterSpec"]["properties"]["placement"]
    placement["anyOf"].insert(0, definitions["PlacementSpec"]["properties"]["kind"] | {"default": None})
    training, recompute = definitions["Training"]["properties"], definitions["RecomputeSpec"]["properties"]
    optimizer, named = training["optimizer"], {"type": "string", "examples": list(optimizer_names())}
    optimizer["anyOf"] = [named, {"$ref": optimizer.pop("$ref")}]
    sharding = definitions["Software"]["properties"]["sharding"]
    word = definitions["ShardingSoftware"]["properties"]["implementation"]
    sharding["anyOf"] = [word, {"$ref": sharding.pop("$ref")}]
    training["loss_scale"]["anyOf"].insert(0, {"enum": list(DEFAULTS), "type": "string"})
    for name, field in RECOMPUTE.items():
        training[name] = {**recompute[field], "description": f"beside recompute_granularity: {field}"}
