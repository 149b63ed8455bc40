"""Frameworks by their own names stand for presets, in scenarios and in measured cases alike."""

from __future__ import annotations

import pickle

import pytest

import stepsim
from stepsim.hardware.catalogue import UnknownName
from stepsim.sim.scenario.software import get_software, software_names
from stepsim.sim.scenario.software.called import framework_names, software_called


@pytest.mark.parametrize("name", framework_names())
def test_a_framework_is_a_preset_however_it_is_written(name: str) -> None:
    preset = software_called(name)
    assert preset in software_names()
    assert name not in software_names()
    for written in (name.upper(), name.replace("-", "_"), name.replace(" ", "-")):
        assert get_software(written) == get_software(preset)


def test_a_scenario_may_name_the_framework() -> None:
    scenario = stepsim.load_scenario("llama3-8b-h100")
    by_name, by_preset = (scenario.with_({"software": one}) for one in ("LitGPT", "generic-fsdp"))
    assert by_name == by_preset


def test_an_unknown_framework_is_refused_with_all_presets() -> None:
    with pytest.raises(UnknownName) as caught:
        get_software("no such trainer")
    assert set(caught.value.known) == set(software_names())
    kin = {name for name in software_names() if not get_software(name).read}
    assert {name for name in kin if name not in caught.value.advice} <= {"generic-megatron-2022"}
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_torchtitan_without_sharding_runs_in_full_precision() -> None:
    """Mixed precision is FSDP's there: a note says so of a scenario that wants another."""
    scenario = stepsim.load_scenario("llama3-8b-h100").with_(
        {
            "software": "torchtitan",
            "cluster": {"gpus": 8},
            "parallelism": {"tp": 8, "cp": 1, "dp": 1, "pp": 1, "sequence_parallel": True},
            "training": {"precision": "bf16", "global_batch": 8, "micro_batch": 1},
        }
    )
    notes = [str(one) for one in stepsim.simulate(scenario).assumptions]
    assert any("FP32 where tensors or stages are split" in note for note in notes)


def test_a_slip_in_a_frameworks_name_is_told_the_framework() -> None:
    for wrong, right in (("Xtunr", "XTuner"), ("torchtitn", "torchtitan"), ("mlperf-5.01", "mlperf-5.1")):
        with pytest.raises(UnknownName) as caught:
            get_software(wrong)
        assert caught.value.nearest == right
