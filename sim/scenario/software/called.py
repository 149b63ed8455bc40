"""Presets by what people call their frameworks: ``torchtitan``, ``GPT-NeoX``, ``LitGPT``.

Knows names alone; which preset measured cases of a year take is in calibration/cases/framework_text.yaml.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from pathlib import Path

from ....hardware.catalogue import read

_FILE = Path(str(files(__package__))) / "called.yaml"


def software_called(name: str) -> str | None:
    """The preset that stands for the framework of that name; None where none does.

    >>> [software_called(name) for name in ("GPT-NeoX", "lit_gpt", "Torchtitan", "x")]
    ['gpt-neox-2022', 'generic-fsdp', 'torchtitan-2025', None]
    """
    return _by_words().get(_words(name))


def framework_names() -> tuple[str, ...]:
    """Every name of a framework that stands for a preset, as its makers write it."""
    return tuple(name for names in _names().values() for name in names)


def mentions(preset: str) -> str:
    """A pattern of texts that mention a framework which ``preset`` stands for.

    >>> import re
    >>> [bool(re.search(mentions("generic-jax"), text, re.IGNORECASE)) for text in ("Pax (JAX)", "relaxed")]
    [True, False]
    """
    written = (re.sub(r"[-_ ]", "[-_ ]?", name) for name in _names()[preset])
    return rf"\b({'|'.join(written)})\b"


@cache
def _names() -> dict[str, list[str]]:
    return read(_FILE)  # type: ignore[return-value]


@cache
def _by_words() -> dict[str, str]:
    return {_words(name): preset for preset, names in _names().items() for name in names}


def _words(name: str) -> str:
    return re.sub(r"[-_ ]", "", name.lower())
