"""Kinds and presets of faults as they ship: each is whole, the page has the kinds, Llama 3's counts hold."""

from __future__ import annotations

from pathlib import Path

import pytest
from faults_campaigns import document, plan_of

from stepsim.sim.scenario.faults.faults import MAGNITUDES, parse_fault
from stepsim.sim.scenario.faults.kinds import ANYWHERE, get_kind, kind_names
from stepsim.sim.scenario.faults.presets import get_preset, preset_names
from stepsim.sim.scenario.faults.targets import Target

# Kinds ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", kind_names())
def test_every_kind_is_whole(name: str) -> None:
    kind = get_kind(name)
    assert kind.name == name
    assert kind.title
    assert kind.source
    assert kind.scopes
    assert set(kind.scopes) <= set(ANYWHERE)
    assert set(kind.keys) <= set(MAGNITUDES)
    assert kind.detectors
    scope = kind.scopes[0]
    target = scope if scope in ("job", "storage") else f"{scope}/0"
    lasts = kind.effect not in ("crash", "hang") or kind.swapped != "none"
    fault = parse_fault(f"{name} {target} at=1h" + " duration=10s" * lasts)
    assert fault.where == Target(scope, None if scope in ("job", "storage") else 0)
    assert fault.at == 3600.0


def test_the_kinds_are_those_of_the_reference() -> None:
    assert set(kind_names()) == {
        "gpu_fatal", "gpu_transient", "gpu_throttle", "sdc", "node_down", "nic_down", "link_degraded",
        "link_flap",
        "leaf_switch_down", "rack_power", "storage_outage", "storage_slow", "hang", "software_crash",
        "planned_maintenance", "preemption",
    } | {"spine_switch_down", "host_jitter", "checkpoint_write"}  # fmt: skip


def test_the_page_names_every_kind(root: Path) -> None:
    text = (root / "docs" / "faults.md").read_text()
    assert [name for name in kind_names() if f"`{name}`" not in text] == []


# Presets ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_is_whole(name: str) -> None:
    found = get_preset(name)
    assert found
    assert all(process.source for process in found)
    assert len({process.title for process in found}) == len(found)


def test_llama3s_rates_give_the_published_interruptions() -> None:
    """419 unexpected and 47 planned interruptions in 54 days on 16,384 GPUs."""
    doc = document(cluster={"gpus": 16384, "gpus_per_node": 8}, faults={"presets": ["llama3-2024"]})
    rates = {source.name: source.rate_per_s * 54 * 86400 for source in plan_of(doc).sources}
    planned = rates.pop("planned_stop")
    assert planned == pytest.approx(47, rel=1e-4)
    assert sum(rates.values()) == pytest.approx(419, rel=1e-4)
    assert rates["faulty_gpu"] == pytest.approx(148, rel=1e-4)
