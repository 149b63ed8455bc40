"""The space of layouts: what its masks cut is what a scenario, or lowering, refuses; and it counts all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused_at
from small_plans import small
from small_scenarios import presets_for, scenario

from stepsim.hardware.calibrated.overlay import calibrated_profile
from stepsim.schedules.pipeline import names
from stepsim.sim.lowering.lower import lower
from stepsim.sim.plan import space as planned_space
from stepsim.sim.plan.axes import LAYOUT, layout_values
from stepsim.sim.plan.fields import field_value
from stepsim.sim.plan.legality import LayoutRule, rules
from stepsim.sim.plan.space import Space, space_of
from stepsim.sim.scenario.errors import ScenarioError
from stepsim.sim.scenario.load import load_scenario
from stepsim.sim.scenario.machine import gpu_of
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.scenario.refusal import NotSupported
from stepsim.sim.simulate import build_cluster

WIDE: dict[str, list[Any]] = {
    "parallelism.tp": [1, 2, 3, 4],
    "parallelism.cp": [1, 2, 4],
    "parallelism.cp_a2a": [None, 1, 2],
    "parallelism.pp": [1, 2, 3, 4],
    "parallelism.vpp": [1, 2, 3],
    "parallelism.ep": [1, 2, 4],
    "parallelism.etp": [1, 2],
    "parallelism.sequence_parallel": [False, True],
    "parallelism.stage_split": [
        "uniform",
        "embedding_and_loss_as_layers",
        "uneven_unspecified",
        "flops_balanced",
    ],
    "parallelism.zero": [0, 1, 2, 3],
    "parallelism.fsdp_shard_size": [None, 1, 2, 4],
    "schedule": ["none", *names(), "zb-2p"],
    "schedule_options.group": [None, 2, 3],
    "training.micro_batch": [1, 2, 3],
    "training.recompute": [
        "none",
        "selective",
        "full",
        "op_selective",
        {"kind": "full", "layers": 2},
        {"kind": "full", "layers": 4, "method": "uniform"},
        {"kind": "modules", "modules": ["layernorm", "moe_act"]},
    ],
    "training.activation_offload": [False, True],
    "software.gradients.overlap_grad_reduce": [False, True],
    "software.gradients.overlap_param_gather": [False, True],
    "software.exchange.tp_comm_overlap": [False, True],
    "software.exchange.moe_a2a_overlap": [False, True],
}
"""Values that suit each other seldom."""

MOE = {"num_experts": 4, "topk": 2, "expert_ffn_hidden_size": 256}


@st.composite
def spaces(draw: st.DrawFn) -> Space:
    """The space of a small scenario over a few wide axes; frameworks' notes cut nothing, as all is stated."""
    preset = draw(st.sampled_from(presets_for("H100-SXM5-80GB")), label="preset")
    moe = draw(st.booleans(), label="experts")
    document: dict[str, Any] = {"gpu": "H100-SXM5-80GB", "interconnect": "ib-ndr400-x8", "software": preset}
    own = scenario(**document, mlp="swiglu", dp=8, microbatches=6, **({"moe": MOE} if moe else {}))
    axes = draw(st.lists(st.sampled_from(sorted(WIDE)), min_size=3, max_size=6, unique=True), label="axes")
    vary = {name: WIDE[name] for name in axes} | {"schedule": WIDE["schedule"]}
    rest = {name: values[:1] for name, values in layout_values(own).items() if name not in vary}
    return space_of(own, vary={**rest, **vary})


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(space=spaces(), data=st.data())
def test_legal_is_what_a_scenario_and_lowering_take(space: Space, data: st.DataObject) -> None:
    """Of any point of the product: it is in the space if and only if it loads and can be lowered."""
    legal = set(zip(*(space.codes[name].tolist() for name in LAYOUT), strict=True))
    for _ in range(4):
        point = tuple(data.draw(st.integers(0, len(space.values[name]) - 1), label=name) for name in LAYOUT)
        changes = {name: space.values[name][code] for name, code in zip(LAYOUT, point, strict=True)}
        assert (point in legal) == runs(space.scenario, changes), changes


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(space=spaces(), data=st.data())
def test_every_layout_can_be_lowered(space: Space, data: st.DataObject) -> None:
    """Points of the product are legal seldom: so legal ones are drawn, too."""
    if len(space):
        i = data.draw(st.integers(0, len(space) - 1))
        assert runs(space.scenario, space.settings(i)), space.settings(i)


def runs(own: Scenario, changes: dict[str, Any]) -> bool:
    """Whether the scenario with these changes is one, and can be lowered."""
    try:
        changed = own.with_({"parallelism.dp": None, **changes})
        lower(changed, build_cluster(changed))
    except (ScenarioError, NotSupported):
        return False
    return True


@pytest.mark.parametrize("name", ["llama3-70b-h100", "llama3.1-405b-16k", "deepseek-v3-2048-h800"])
def test_the_scenario_s_own_layout_is_there_and_all_are_counted(name: str) -> None:
    run = load_scenario(name)
    space = space_of(run)
    product = np.prod([len(values) for values in layout_values(run).values()], dtype=object)
    assert len(space) + sum(space.refused.values()) == product
    assert space.own is not None
    assert all(
        space.values[field][space.codes[field][space.own]] == field_value(run, field) for field in LAYOUT
    )


def test_a_layout_by_its_number_is_the_scenario_with_its_settings() -> None:
    space = space_of(load_scenario("llama3-70b-h100"), vary={"cluster.gpus": [64, 128]})
    for i in range(0, len(space), 997):
        checked, draft = space.scenario_of(i), space.draft(i)
        assert checked.cluster.gpus == space.columns["cluster.gpus"][i]
        assert checked.parallelism.dp == space.columns["parallelism.dp"][i]
        for block in ("model", "cluster", "parallelism", "training", "schedule", "software"):
            assert getattr(draft, block) == getattr(checked, block), block


@pytest.mark.parametrize("name", ["llama3-70b-h100", "llama3.1-405b-16k", "deepseek-v3-2048-h800"])
def test_what_workers_replay_is_checked_and_the_layout_in_all_that_a_step_follows_from(name: str) -> None:
    space = space_of(load_scenario(name))
    some = range(0, len(space), 1 + len(space) // 20)
    assert len([space.replayed(i) for i in some]) > 10  # what one remembers of its check is not another's
    for i in some:
        shown, replayed = space.scenario_of(i), space.replayed(i)
        assert replayed.is_checked
        assert space.replayed(i) is replayed
        told = {"title": shown.title, "published": shown.published}
        assert replayed.model_copy(update=told) == shown


def test_what_is_fixed_is_the_only_value() -> None:
    space = space_of(load_scenario("llama3-70b-h100"), fix={"parallelism.tp": 4, "parallelism.dp": 2})
    assert set(space.columns["parallelism.tp"]) == {4}
    assert set(space.columns["parallelism.dp"]) == {2}


@pytest.mark.parametrize(
    ("fix", "field"),
    [
        ({"parallelism.tq": 4}, "parallelism.tq"),
        ({"parallelism.zero": 5}, "parallelism.zero"),
        ({"schedule": "2f2b"}, "schedule"),
    ],
)
def test_what_no_scenario_has_is_refused_by_its_field(fix: dict[str, Any], field: str) -> None:
    with pytest.raises(ScenarioError) as error:
        space_of(load_scenario("llama3-70b-h100"), fix=fix)
    assert error.value.problems[0].path == field


UNKNOWN_THERE = {"software.kernels.attention": "fa3", "cluster.gpu": "H100-SXM5-80GB"}
"""FlashAttention-3 is Hopper's."""


def test_what_no_layout_has_is_refused_as_a_step_refuses_it() -> None:
    run = load_scenario("llama3-70b-h100").with_({**UNKNOWN_THERE, "cluster.gpu": "MI300X"})
    with refused_at("software.kernels.attention", "MI300X", "fa2"):
        space_of(run)


def test_a_gpu_that_no_layout_runs_on_is_counted_beside_one_that_many_do() -> None:
    run = load_scenario("llama3-70b-h100").with_(UNKNOWN_THERE)
    both = space_of(run, vary={"cluster.gpu": ["H100-SXM5-80GB", "MI300X"]})
    assert len(both) == len(space_of(run))
    assert both.refused["not modelled: software.kernels.attention"] > 0
    assert len(space_of(run, vary={"cluster.gpu": ["MI300X"]})) == 0


def test_what_follows_where_a_framework_s_rule_does_not_apply_is_nobody_s_wish() -> None:
    """One GPU shards nothing and has one stage; on eight nanotron and torchtitan have their own ways."""
    alone = {
        "cluster.gpus": 1,
        "parallelism.tp": 1,
        "parallelism.sequence_parallel": None,
        "parallelism.pp": 1,
        "parallelism.zero": None,
        "schedule": None,
    }
    for software, zeros, splits in (
        ("nanotron-2025", {0, 1}, {"flops_balanced"}),
        ("torchtitan-2025", {2, 3}, {"uniform", "embedding_and_loss_as_layers"}),
    ):
        run = load_scenario("llama3-8b-h100", {**alone, "software": software})
        columns = space_of(run, vary={"cluster.gpus": [8]}).columns
        stages, shared = (
            columns["parallelism.pp"] > 1,
            columns["parallelism.dp"] * columns["parallelism.cp"] > 1,
        )
        assert {*columns["parallelism.zero"][shared]} <= zeros
        assert {*columns["parallelism.stage_split"][stages & (columns["parallelism.vpp"] == 1)]} == splits


@pytest.mark.parametrize(("schedules", "asked"), [(["1f1b"], False), (["1f1b", "pipedream"], True)])
def test_a_refusal_is_asked_of_layouts_where_some_of_them_concern_it(
    schedules: list[str], asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    drafts: list[Scenario] = []

    def counted(one: LayoutRule) -> LayoutRule:
        def breaks(draft: Scenario) -> str:
            drafts.append(draft)
            return one.breaks(draft)

        return replace(one, breaks=breaks) if one.concerned_by == ("schedule",) else one

    job = small()
    found = rules(job, calibrated_profile(gpu_of(job.cluster), job.calibration))
    assert any(one.concerns for one in found)
    assert all({*one.concerned_by} <= {*one.reads} for one in found)
    monkeypatch.setattr(planned_space, "rules", lambda *given: [*map(counted, rules(*given))])
    space = space_of(job, vary={"schedule": schedules, "parallelism.zero": [0, 1]})
    assert bool(drafts) is asked
    assert ("not modelled: parallelism.zero" in space.refused) is asked
