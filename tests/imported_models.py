"""Models of Hugging Face's config.json, built as a scenario builds them."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from stepsim.sim.scenario.model.huggingface import config_fields
from stepsim.sim.scenario.model.model import Model


def import_model(path: Path) -> Model:
    """The model of a config.json, or of the folder that holds one; ValueError for what no ranges hold too."""
    fields = config_fields(path)
    try:
        return Model(**fields)
    except ValidationError as failure:
        wrong = (f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in failure.errors())
        raise ValueError(f"{path}: {'; '.join(wrong)}") from None
