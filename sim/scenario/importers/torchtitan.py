"""torchtitan: TOML of all versions, and the configuration that its Python registry dumps.

Sources: pytorch/torchtitan torchtitan/config_manager.py at 9dec370 and v0.1.0; config/job_config.py,
train.py at v0.2.2; config/configs.py at b5bcd76. Degrees and batches are in torchtitan_layout.py, what
options switch on in torchtitan_software.py.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Any

from ....hardware.files import load_yaml
from .cluster_facts import put_machine, world_size
from .draft import Draft, Imported
from .importer import Importer, ImportJob
from .launchers import launch_among
from .leftovers import settle
from .settings import Settings
from .sources import SourceFile
from .torchtitan_layout import product_of, put_axes, put_batches
from .torchtitan_software import put_precision, put_recompute, put_software

_OTHER_MODELS = {
    "flux": "image models are not modelled", "vlm": "vision-language models are not modelled",
    "llama4": "llama4's chunked attention is not modelled", "transformers_modeling_backend": None,
}  # fmt: skip


@cache
def flavors() -> dict[str, dict[str, dict[str, Any]]]:
    """Models by name and flavor: a catalogue's model under ``preset``, changes to it, or the fields."""
    name = "torchtitan_flavors.yaml"
    table: dict[str, dict[str, dict[str, Any]]] = load_yaml(
        (files(__package__) / name).read_text(encoding="utf-8"), name
    )
    return table


def _recognises(file: SourceFile) -> bool:
    if file.kind == "toml":
        return "training" in file.keys and bool(
            file.keys & {"job", "parallelism", "activation_checkpoint", "experimental", "model"}
        )
    if file.kind in ("json", "yaml"):
        return (
            file.at("training.max_context_length") is not None
            or {"parallelism", "training", "activation_checkpoint"} <= file.keys
        )
    return False


def read_torchtitan(job: ImportJob) -> Imported:
    """The scenario of a torchtitan run.

    Raises:
        ScenarioError: what is asked or refused.
    """
    draft = Draft(framework="torchtitan", file=job.name)
    first = job.first(_recognises)
    settings = Settings(found=first.settings(), given=job.given, draft=draft)
    script = job.script
    launch = launch_among(script, job.files, job.given, draft) if script else None
    if launch:
        settings.found |= {name: one for name, one in launch.options.items() if "." in name}
    gpus = world_size(
        settings,
        launch.nodes if launch else None,
        launch.per_node if launch else None,
        None if launch and launch.per_node else product_of(settings, first.name),
    )
    return torchtitan_scenario(settings, job.version, gpus)


_UNPADDED = "2026-04"
"""The month from which on rows of experts are not padded (pull request 2774; v0.2.2 is of before), for
versions that are told by their date."""


def torchtitan_scenario(settings: Settings, version: str | None, gpus: int | None) -> Imported:
    """The scenario that torchtitan's settings say; Primus has them under its own roof.

    Raises:
        ScenarioError: what is asked or refused.
    """
    draft = settings.draft
    old = settings.has("training.batch_size") or (version or "").startswith(("9dec370", "c48ae39", "2024"))
    draft.version = version or ("2024" if old else "v0.2.2")
    draft.put(
        "software.preset", "torchtitan-2024" if old else "torchtitan-2025", f"torchtitan {draft.version}"
    )
    _model(settings)
    dated = re.match(r"20\d\d-\d\d", draft.version)
    if dated and dated[0] >= _UNPADDED:
        draft.put("software.exchange.arrivals_padded", False, f"torchtitan {draft.version}")
    ranks = put_axes(settings, gpus)
    put_batches(settings, ranks, old)
    put_recompute(settings)
    put_precision(settings)
    put_software(settings, old)
    put_machine(settings)
    settle(settings, "torchtitan")
    return draft.finished()


def _model(settings: Settings) -> None:
    draft = settings.draft
    if draft.get("model.preset") is not None:  # Primus names it
        return
    settings.text("hf_transformers.model")
    if settings.flag("fault_tolerance.enable"):
        settings.refuse_if(
            "fault_tolerance.semi_sync_method", "replicas that meet only now and then are not modelled"
        )
    for name in (
        "fault_tolerance.sync_steps",
        "fault_tolerance.num_fragments",
        "fault_tolerance.fragment_sync_delay",
    ):
        settings.setting(name)
    named = settings.text("model.name")
    flavor = settings.text("model.flavor")
    given = settings.given.get("model")
    if given is not None:
        draft.put("model.preset", given, f"--given model={given}")
        return
    if named in _OTHER_MODELS:
        why = _OTHER_MODELS[named]
        if why:
            settings.refuse("model.name", f"{named}: {why}")
            return
    found = flavors().get(str(named), {}).get(str(flavor))
    if found is None:
        shape = " ".join(one for one in (named, flavor) if one)
        why = f"the shape of {shape} is in torchtitan's Python, not in the file, and not in our table"
        if not shape:
            why = "the file names no model.name and no model.flavor"
        draft.ask("model", f"{why} (a model of stepsim list models, or a config.json)", "llama3-8b")
        return
    for field, value in found.items():
        settings.put(f"model.{field}", value, "model.flavor")
    rows = settings.given.get("vocab_size")
    if rows is not None:
        settings.put("model.vocab_size", settings.integer("vocab_size"), "vocab_size")


IMPORTER = Importer(
    name="torchtitan",
    title="torchtitan",
    source="pytorch/torchtitan torchtitan/config_manager.py, config/job_config.py (9dec370 to v0.2.2), "
    "config/configs.py (b5bcd76)",
    recognises=_recognises,
    read=read_torchtitan,
    versioned=True,
    order=30,
)
