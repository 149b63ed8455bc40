"""The model of a run that is named, or described by Hugging Face's fields, as fields of ``model``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..model.catalogue import get_model, model_called, model_names
from ..model.huggingface import config_fields, family_fields
from .settings import Settings
from .sources import SourceFile


def put_named_model(settings: Settings, name: str | None, origin: str, files: tuple[SourceFile, ...]) -> bool:
    """Put a model by what is given, a config.json among the files, or a name; asks where nothing says it."""
    draft = settings.draft
    given = settings.given.get("model")
    config = next((one for one in files if one.kind == "json" and one.at("model_type") is not None), None)
    try:
        if given is not None and given not in model_names() and _is_there(given):
            put_fields(settings, config_fields(Path(given)), f"--given model={given}")
            return True
        if config is not None:
            put_fields(settings, config_fields(config.path), config.name)
            return True
    except ValueError as error:
        draft.refuse("model", str(error))
        return False
    known = given or (model_called(name) if name else None)
    if known:
        draft.put("model.preset", known, f"--given model={given}" if given else origin)
        return True
    what = (
        f"the model {name} is not in the catalogue" if name else "the files do not say which model is trained"
    )
    draft.ask("model", f"{what}; a model of stepsim list models, or a config.json, is needed", "llama3-8b")
    return False


def _is_there(name: str) -> bool:
    try:
        return Path(name).exists()
    except OSError:  # a name that no file can have
        return False


def put_catalogue_model(settings: Settings, name: str, origin: str) -> None:
    """Put the fields of a model of the catalogue, where other fields follow from them."""
    fields = get_model(name).model_dump(mode="json", exclude_none=True, exclude={"name", "padded_vocab_size"})
    put_fields(settings, fields, f"{origin} ({name})")


def put_fields(settings: Settings, fields: Mapping[str, Any], origin: str) -> None:
    """Put fields of a model as they are."""
    for field, value in fields.items():
        settings.draft.put(f"model.{field}", value, origin)


def put_family(settings: Settings, family: str, config: Mapping[str, Any], origin: str) -> None:
    """Put a model by fields of a Hugging Face config of that family."""
    try:
        put_fields(settings, family_fields(family, dict(config)), origin)
    except ValueError as error:
        settings.draft.refuse("model", str(error))
