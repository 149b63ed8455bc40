"""The model of a run that is named, or described by Hugging Face's fields, as fields of ``model``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..model.catalogue import get_model, model_names
from ..model.huggingface import config_fields, family_fields
from .settings import Settings
from .sources import SourceFile

_CALLED = {
    "llama-2-7b": "llama2-7b", "llama-2-13b": "llama2-13b", "llama-2-70b": "llama2-70b",
    "meta-llama-3-8b": "llama3-8b",
    "meta-llama-3-70b": "llama3-70b", "llama-3.1-8b": "llama3-8b", "meta-llama-3.1-8b": "llama3-8b",
    "llama-3.1-70b": "llama3-70b",
    "meta-llama-3.1-70b": "llama3-70b", "llama-3.3-70b": "llama3-70b", "llama-3.1-405b": "llama3.1-405b",
    "meta-llama-3.1-405b": "llama3.1-405b",
    "mistral-7b-v0.1": "mistral-7b", "mixtral-8x7b-v0.1": "mixtral-8x7b",
    "mixtral-8x22b-v0.1": "mixtral-8x22b", "deepseek-v3": "deepseek-v3",
    "deepseek-v3-base": "deepseek-v3", "deepseek-v2": "deepseek-v2",
    "deepseek-v2-lite": "deepseek-v2-lite", "qwen3-30b-a3b": "qwen3-30b-a3b",
    "qwen3-235b-a22b": "qwen3-235b-a22b", "gpt-oss-20b": "gpt-oss-20b", "gpt-oss-120b": "gpt-oss-120b",
    "gpt2-xl": "gpt2-1.5b",
    "kimi-k2-base": "kimi-k2", "grok-1": "grok-1", "nemotron-4-340b-base": "nemotron4-340b",
}  # fmt: skip
"""Last part of a name on huggingface.co, without -instruct and the like: the model of the catalogue."""


def catalogue_name(name: str) -> str | None:
    """The catalogue's model that a name of a file or of huggingface.co means; None where it is not there.

    >>> catalogue_name("meta-llama/Llama-3.1-70B-Instruct")
    'llama3-70b'
    """
    last = name.strip().rstrip("/").rpartition("/")[2].lower()
    for ending in ("-instruct", "-hf", "-chat", "-it", "-bnb-4bit", "-unsloth", "-instruct-2507", "-bf16"):
        last = last.removesuffix(ending)
    last = last.removesuffix("-instruct").removesuffix("-hf").removesuffix("-chat")
    return last if last in model_names() else _CALLED.get(last)


def put_named_model(
    settings: Settings, name: str | None, origin: str, files: tuple[SourceFile, ...] = ()
) -> bool:
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
    known = given or (catalogue_name(name) if name else None)
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
