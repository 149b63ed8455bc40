"""What the text of a case's ``software.framework`` says of the run: preset, model, training, software.

Knows the table ``framework_text.yaml`` and the few words that have a number in them. Does not know what the
rest of a case says (preset.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from ...hardware.files import load_yaml
from ...sim.scenario.software.called import mentions

_FILE = "framework_text.yaml"

COMBINED = {
    "gathers": "combine_gather_bytes",
    "scatters": "combine_scatter_bytes",
    "reductions": "combine_reduce_bytes",
}
"""Fields of XLA's thresholds by the word for their collectives in ``gathers combined to 128 MiB``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PresetChoice:
    """Frameworks whose text matches ``text`` are ``preset``, from year ``since`` to ``until``.

    ``mentions`` stands for the pattern of texts that mention a framework of that preset.
    """

    preset: str
    text: str = ""
    mentions: str = ""
    since: int = 0
    until: int = 9999

    def matches(self, framework: str, year: int) -> bool:
        """Whether the choice is right for a framework's text and the year of the run."""
        pattern = mentions(self.mentions) if self.mentions else self.text
        return self.since <= year <= self.until and re.search(pattern, framework, re.IGNORECASE) is not None


@cache
def preset_choices() -> tuple[PresetChoice, ...]:
    """The choices of presets, of which the first that matches holds."""
    return tuple(PresetChoice(**entry) for entry in _table()["presets"])


def preset_said(framework: str, year: int) -> str:
    """Name of the preset that a framework's text means in a year."""
    return next(one.preset for one in preset_choices() if one.matches(framework, year))


def fields_said(block: Literal["model", "training", "software"], framework: str) -> dict[str, Any]:
    """Fields of a block of a scenario that a framework's text states.

    >>> fields_said("software", "TRL (FSDP1; fused loss)")
    {'implementation': 'fsdp1', 'cross_entropy': 'fused', 'logits_fp32': False}
    """
    said: dict[str, Any] = {}
    for words, meant in _table()[block].items():
        said |= meant if words in framework.lower() else {}
    return said


def fields_of_words(words: str) -> Mapping[str, Any]:
    """Fields of the software that these words alone stand for."""
    fields: Mapping[str, Any] = _table()["software"][words]
    return fields


def dispatcher_said(framework: str) -> dict[str, str]:
    """How tokens reach experts, as presets name it, where a framework's text says so."""
    known = (name for words, name in _table()["dispatchers"].items() if words in framework.lower())
    name = next(known, None)
    return {"moe_dispatcher": name} if name else {}


def models_of(preset: str) -> Mapping[str, Any]:
    """Fields of a scenario's ``model`` that the models of a preset's framework have."""
    fields: Mapping[str, Any] = _table()["models_of_presets"].get(preset, {})
    return fields


def combined_bytes(framework: str) -> dict[str, float]:
    """The thresholds that a framework's text states, in words of a preset.

    >>> combined_bytes("Pax (JAX; gathers combined to 512 MiB, scatters combined to 8 MiB)")
    {'combine_gather_bytes': 536870912.0, 'combine_scatter_bytes': 8388608.0}
    """
    stated = re.findall(r"(gathers|scatters|reductions) combined to (\d+) MiB", framework)
    return {COMBINED[kind]: float(number) * 2**20 for kind, number in stated}


def loss_chunks(framework: str) -> dict[str, int]:
    """Into how many parts a framework's text says that head and loss are cut, in words of a preset.

    >>> loss_chunks("TRL (FSDP2; loss in 512 chunks)")
    {'loss_chunks': 512}
    """
    stated = re.search(r"loss in (\d+) chunks", framework)
    return {"loss_chunks": int(stated[1])} if stated else {}


def document_length(framework: str) -> dict[str, int]:
    """How long the documents are that a framework's text says sequences are packs of, in words of training.

    >>> document_length("NeMo 24.12 (packs of documents of 200 tokens)")
    {'document_length': 200}
    """
    stated = re.search(r"documents of (\d+) tokens", framework)
    return {"document_length": int(stated[1])} if stated else {}


@cache
def _table() -> Mapping[str, Any]:
    text = files(__package__).joinpath(_FILE).read_text(encoding="utf-8")
    table: Mapping[str, Any] = load_yaml(text, _FILE)
    return table
