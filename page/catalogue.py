"""What the page offers to choose from: names with their main figures, and every field with its help.

Knows which list serves which choice. What stands in a list is read from the catalogues.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from .fields import fields
from .first_scenario import FIRST


@cache
def catalogue() -> dict[str, Any]:
    """One JSON document; the same for as long as the server runs."""
    from ..hardware.interconnect import offered_interconnects
    from ..sim.scenario.aliases import SHORT_FORMS
    from ..sim.scenario.optimizers import optimizer_names
    from ..sim.scenario.schedules import schedule_names

    return {
        "first": FIRST,
        "models": _models(),
        "gpus": _gpus(),
        "interconnects": list(offered_interconnects()),
        "software": _software(),
        "schedules": list(schedule_names()),
        "optimizers": list(optimizer_names()),
        "faults": _faults(),
        "fault_presets": _fault_presets(),
        "scenarios": _scenarios(),
        "frameworks": _frameworks(),
        "fields": fields(),
        "short_forms": SHORT_FORMS,
        "palette": _palette(),
    }


def _models() -> list[dict[str, Any]]:
    from ..sim.scenario.load import scenario_from_document
    from ..sim.scenario.model.catalogue import model_names

    cluster = {"gpu": "H100-SXM5-80GB", "gpus": 1, "interconnect": "nvlink-only"}
    training = {"seq_length": 1024, "micro_batch": 1, "global_batch": 1, "precision": "bf16"}
    found = []
    for name in model_names():
        document = {"model": name, "cluster": cluster, "training": training, "software": "nemo-2025"}
        model = scenario_from_document(document, name).model
        found.append({"name": name, "hidden": model.hidden_size, "layers": model.num_layers})
    return found


def _gpus() -> list[dict[str, Any]]:
    from ..sim.report.gpus import gpus_document

    return [
        {
            "name": name,
            "memory_bytes": gpu["memory_bytes"],
            "bf16_flops": gpu["peak_flops"].get("bf16") or gpu["peak_flops"].get("fp16"),
            "measured": gpu["profile_of"] == name,
            "announced": bool(gpu["announced"]),
        }
        for name, gpu in gpus_document().items()
    ]


def _software() -> list[dict[str, str]]:
    from ..sim.scenario.software import get_software
    from ..sim.scenario.software.presets import software_names

    return [{"name": name, "title": get_software(name).title} for name in software_names()]


def _faults() -> list[dict[str, Any]]:
    from ..sim.scenario.faults.kinds import get_kind, kind_names

    return [
        {
            "name": kind.name,
            "title": kind.title,
            "what": kind.what,
            "scopes": list(kind.scopes),
            "keys": dict(kind.keys),
            "in_step": kind.in_step is not None,
        }
        for kind in map(get_kind, kind_names())
    ]


def _fault_presets() -> list[str]:
    from ..sim.scenario.faults.presets import preset_names

    return list(preset_names())


def _scenarios() -> list[dict[str, Any]]:
    """The shipped scenarios as documents, without what is known of them alone."""
    from ..sim.scenario.documents import scenario_names, whole_document

    found = []
    for name in scenario_names():
        document = whole_document(name)[0].plain()
        title = document.pop("title", name)
        for key in ("extends", "published", "name"):
            document.pop(key, None)
        found.append({"name": name, "title": title, "document": document})
    return found


def _frameworks() -> list[str]:
    from ..sim.scenario.importers.registry import EXPORTERS

    return list(EXPORTERS.names())


def _palette() -> dict[str, Any]:
    from ..sim.report.drawing.palette import FLAT, SINGLE

    return {**FLAT, **SINGLE}
