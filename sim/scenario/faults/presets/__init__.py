"""Published failure rates by name: one YAML file each, a list of processes with their source."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from .....hardware.catalogue import unknown_name
from .....hardware.files.shipped_yaml import load_shipped
from ..faults import Process


def preset_names() -> tuple[str, ...]:
    """Every preset, in alphabetical order."""
    return tuple(sorted(path.stem for path in Path(str(files(__package__))).glob("*.yaml")))


@cache
def get_preset(name: str) -> tuple[Process, ...]:
    """The processes of that preset.

    Raises:
        ValueError: no such preset; the message has the nearest one and all of them.
    """
    if name not in preset_names():
        raise unknown_name("preset of faults", name, preset_names())
    document = load_shipped(files(__package__).joinpath(f"{name}.yaml").read_text("utf-8"))
    source = document["source"]
    return tuple(
        Process.model_validate({"source": source, **_numbers(entry)}, context={"document": True})
        for entry in document["processes"]
    )


def _numbers(entry: dict[str, Any]) -> dict[str, Any]:
    """PyYAML reads 4e-3 as text."""
    rates = ("rate_per_unit_day", "prevalence", "slow_factor")
    return {key: float(value) if key in rates else value for key, value in entry.items()}
