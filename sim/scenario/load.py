"""Scenarios and campaigns of weeks from files, shipped scenarios, mappings and ``--set`` overrides."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .build import build_bare
from .documents import Changes, canonical_tree, whole_document, with_base, with_overrides
from .errors import Mark
from .models import Scenario, scenario_of
from .tree import TreeNode, from_plain

if TYPE_CHECKING:
    from .faults.bare import Bare


def load_scenario(source: str | Path | Mapping[str, Any], overrides: Changes = ()) -> Scenario:
    """The scenario in the file ``source``, the shipped one of that name, or the one that a mapping says.

    Args:
        source: a path, a name of ``scenario_names()``, or what a file would hold, as dicts, lists, text
            and numbers; paths in it are relative to the current folder.
        overrides: changes as lines, ``["parallelism.tp=4"]``, whose value is YAML, or as a mapping,
            ``{"parallelism.tp": 4}``; the last one wins. ``title`` and ``published`` are dropped where
            they change the job.

    Raises:
        ScenarioError: with every problem found, each at its file, line and column.

    >>> load_scenario("llama3-8b-h100", {"parallelism.tp": 4, "training.micro_batch": 2}).parallelism.tp
    4
    """
    tree, name = whole_document(source)
    return scenario_of(with_overrides(tree, overrides), name)


def load_campaign(source: str | Path | Mapping[str, Any], overrides: Changes = ()) -> Scenario | Bare:
    """As ``load_scenario``; a document that has no model but a ``step_time`` gives a bare campaign.

    Raises:
        ScenarioError: with every problem found.
    """
    tree, name = whole_document(source)
    return _campaign(with_overrides(tree, overrides), name)


def campaign_from_document(document: Mapping[str, Any], name: str) -> Scenario | Bare:
    """``load_campaign`` for a plain document.

    Raises:
        ScenarioError: with every problem found.
    """
    return _campaign(with_base(canonical_tree(from_plain(document, Mark(file=name))), ()), name)


def _campaign(tree: TreeNode, name: str) -> Scenario | Bare:
    if "model" in tree.entries or "step_time" not in tree.entries:
        return scenario_of(tree, name)
    return build_bare(tree, name)


def scenario_from_document(document: Mapping[str, Any], name: str) -> Scenario:
    """The scenario of a plain document: what a file would hold, as dicts, lists, text and numbers.

    Raises:
        ScenarioError: with every problem found; ``name`` stands where a file would.
    """
    return scenario_of(with_base(canonical_tree(from_plain(document, Mark(file=name))), ()), name)
