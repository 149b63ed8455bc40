"""The JSON Schema of profile files, for editors."""

from __future__ import annotations

from typing import Any

from ..gpus import gpu_names
from .models import CPU, ProfileFile


def json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of a profile file; quantities are text with a unit."""
    schema = ProfileFile.model_json_schema(mode="validation")
    schema["properties"]["gpu"]["examples"] = [*gpu_names(), CPU]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "stepsim profile",
    }
