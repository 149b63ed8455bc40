"""What the recipes of one software release differ in by GPU, precision and kind of model.

NVIDIA's releases are run by recipe files, one for each model, GPU and precision, whose settings no case
states. Knows the table ``recipes.yaml``, which has each fact with the file that it was read off; which
preset a release is, is in preset.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from ...hardware.files import load_yaml

if TYPE_CHECKING:
    from .case import Case

_FILE = "recipes.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeFact:
    """Software fields of runs with one of ``presets`` that meet all conditions stated here; a condition that
    is empty or None is always met.

    ``gpus`` are prefixes of GPU names. ``widths`` are hidden sizes, which tell the models of a release apart,
    with ``heads`` of attention where two have the same width (DeepSeek-V3 and Kimi K2). ``release`` is a
    regular expression that the framework's text has to match, for facts in which the releases of a preset
    differ. The run is from the years ``since`` to ``until``. ``order`` is that of the rank grid, fastest axis
    first. ``instead`` overrides even the case's own fields: it is what the code of a run does where the
    settings that the case was read from have no effect.
    """

    presets: tuple[str, ...]
    release: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict, hash=False)
    instead: Mapping[str, Any] = field(default_factory=dict, hash=False)
    order: str | None = None
    gpus: tuple[str, ...] = ()
    least_gpus: int = 0
    precisions: tuple[str, ...] = ()
    widths: tuple[int, ...] = ()
    heads: tuple[int, ...] = ()
    since: int = 0
    until: int = 9999
    experts: bool | None = None
    expert_parallel: bool | None = None
    tensor_parallel: bool | None = None
    virtual_stages: bool | None = None
    one_host: bool | None = None

    def holds(self, preset: str, case: Case) -> bool:
        """Whether the fact is one of ``case``, which runs ``preset``."""
        said = (
            (self.experts, case.model.moe is not None),
            (self.expert_parallel, case.layout.ep * case.layout.etp > 1),
            (self.tensor_parallel, case.layout.tp > 1),
            (self.virtual_stages, case.layout.vpp > 1),
            (self.one_host, case.hardware.gpus <= case.hardware.gpus_per_node),
        )
        return (
            preset in self.presets
            and re.search(self.release, case.software.framework) is not None
            and self.since <= case.software.year <= self.until
            and (not self.gpus or case.hardware.gpu.startswith(self.gpus))
            and case.hardware.gpus >= self.least_gpus
            and (not self.precisions or case.layout.precision in self.precisions)
            and (not self.widths or case.model.hidden_size in self.widths)
            and (not self.heads or case.model.num_attention_heads in self.heads)
            and all(wanted is None or wanted == is_so for wanted, is_so in said)
        )


@cache
def recipe_facts() -> tuple[RecipeFact, ...]:
    """The facts of ``recipes.yaml``, in their order: a later one holds over an earlier one."""
    table = load_yaml((files(__package__) / _FILE).read_text(encoding="utf-8"), _FILE)
    return tuple(_fact(entry) for entry in table["facts"])


def _fact(entry: Mapping[str, Any]) -> RecipeFact:
    """An entry of the table, whose lists are tuples."""
    stated: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()
    }
    return RecipeFact(**stated)


def recipe_fields(preset: str, case: Case) -> dict[str, Any]:
    """Fields of the software that the recipe of ``case`` has, as no case says it."""
    return _joined(fact.fields for fact in recipe_facts() if fact.holds(preset, case))


def fields_instead(preset: str, case: Case) -> dict[str, Any]:
    """Fields of the software that the code of the run has, whatever ``case`` says."""
    return _joined(fact.instead for fact in recipe_facts() if fact.holds(preset, case))


def recipe_order(preset: str, case: Case) -> str | None:
    """The order of the rank grid that the recipe of ``case`` asks for, if it does and the run has stages."""
    orders = [fact.order for fact in recipe_facts() if fact.order and fact.holds(preset, case)]
    return orders[-1] if orders and case.layout.pp > 1 else None


def _joined(all_fields: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    joined: dict[str, Any] = {}
    for fields in all_fields:
        joined |= fields
    return joined
