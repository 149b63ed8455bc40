"""All axes of a layout, by one word: what is tried where the framework has it, and what would be the same
twice. That bounds, memory and best first are as exact over them is held by the laws of test_plan_screen.py,
whose axes hold these too, and here over the very values that are tried."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from law_examples import examples
from small_plans import small

import stepsim
from stepsim.hardware.calibrated.overlay import calibrated_profile
from stepsim.sim.brief.step import brief_step
from stepsim.sim.plan.axes import GRAD_REDUCE, LAYOUT, PARAM_GATHER, SWITCHES, Axes, layout_values
from stepsim.sim.plan.fields import field_value
from stepsim.sim.plan.questions.find import find
from stepsim.sim.plan.same_twice import _pairs, _reduces, of_all_axes
from stepsim.sim.plan.screen.screen import Screened, screen
from stepsim.sim.plan.screen.tables import tables_of
from stepsim.sim.plan.search.plan import Means, candidates_of, plan, wishes_of
from stepsim.sim.plan.space import Space, space_of
from stepsim.sim.scenario.load import load_scenario
from stepsim.sim.scenario.machine import gpu_of
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.simulate import simulate

CORE = "megatron-core-2025"
BESIDES = ("parallelism.fsdp_shard_size", "parallelism.order", *SWITCHES)
ALONE: dict[str, Any] = {f"parallelism.{name}": 1 for name in ("tp", "cp", "pp", "vpp", "ep", "etp")}
ALONE |= {"parallelism.dp": None, "parallelism.sequence_parallel": False, "schedule": None}
MOE = {"num_experts": 4, "topk": 2, "expert_ffn_hidden_size": 1024}


def job(software: str | dict[str, str] = CORE, **changes: Any) -> Scenario:
    return small(**{"software": software, "cluster__gpus": 16, **changes})


def tried(scenario: Scenario) -> dict[str, list[Any]]:
    """What all axes have besides the usual ones."""
    usual, every = layout_values(scenario), layout_values(scenario, Axes.ALL)
    found = {name: [one for one in every[name] if one not in usual[name]] for name in LAYOUT}
    return {name: values for name, values in found.items() if values}


def test_all_axes_are_those_that_the_framework_has_as_options() -> None:
    core = tried(job(model__moe=MOE, parallelism__tp=1))
    assert {*core} == {*BESIDES, "training.recompute"}
    assert core["parallelism.fsdp_shard_size"] == [2, 4, 8]
    blocks = [one for one in core["training.recompute"] if one["kind"] == "full"]
    assert {one["method"] for one in blocks} == {"block"}
    assert [one["layers"] for one in blocks] == [1, 2, 3, 4, 5, 6, 8]
    modules = [one["modules"] for one in core["training.recompute"] if one["kind"] == "modules"]
    assert modules == [["layernorm", "moe_act", "core_attn"], ["layernorm", "core_attn", "moe"]]


def test_a_framework_without_an_option_has_no_other_value() -> None:
    assert tried(load_scenario("deepseek-v3-2048-h800")) == {}
    titan = tried(load_scenario("llama3-8b-h100", {"software": "torchtitan-2025"}))
    assert titan["training.recompute"][0] == "op_selective"
    assert {"kind": "full", "every": 2} in titan["training.recompute"]
    assert {*titan} == {"parallelism.fsdp_shard_size", "training.recompute"}
    assert {*tried(job("megatron-2023"))} == {"training.recompute"}


def test_a_stack_of_a_user_s_own_may_have_all() -> None:
    own = tried(job(software={"preset": CORE, "name": "mine"}))
    assert {*own} == {*BESIDES, "training.recompute"}


def test_sizes_that_divide_a_rack_are_tried_there() -> None:
    rack = load_scenario("grok-1-gb200", {"cluster.gpus": 72, "training.global_batch": 72, **ALONE})
    assert {3, 6, 9, 12, 18, 24, 36, 72} <= {*tried(rack)["parallelism.tp"]}
    host = tried(job())
    assert "parallelism.tp" not in host


@pytest.mark.parametrize("name", ["llama3-70b-h100", "llama3.1-405b-16k", "mixtral-8x7b-h100"])
def test_the_scenario_s_own_layout_is_there_and_all_are_counted(name: str) -> None:
    run = load_scenario(name)
    space = space_of(run, axes=Axes.ALL)
    product = np.prod([len(values) for values in layout_values(run, Axes.ALL).values()], dtype=object)
    assert len(space) + sum(space.refused.values()) == product
    assert space.own is not None
    assert len(space) > len(space_of(run))


def test_one_value_of_a_field_is_left_where_it_changes_nothing() -> None:
    space = space_of(job(), axes=Axes.ALL)
    tp, sp, zero, pp, dp = (
        space.columns[f"parallelism.{name}"] for name in ("tp", "sequence_parallel", "zero", "pp", "dp")
    )
    overlap = space.columns["software.exchange.tp_comm_overlap"]
    assert overlap[(tp == 1) | ~sp].all()
    assert not overlap[(tp > 1) & sp].all()
    gathers = space.columns["software.gradients.overlap_param_gather"]
    gathered_by_layers = (zero == 0) | (zero == 3)
    assert gathers[gathered_by_layers & space.columns["software.gradients.overlap_grad_reduce"]].all()
    assert not gathers[zero == 1].all()
    order = space.columns["parallelism.order"] == "tp-cp-ep-dp-pp"
    assert order[(pp == 1) | (dp == 1)].all()
    assert not order.all()


def test_gathers_overlap_beside_reductions_that_do() -> None:
    """As Megatron-LM asserts; its FSDP turns the reductions' overlap on."""
    space = space_of(job(), axes=Axes.ALL)
    reduces = space.columns["software.gradients.overlap_grad_reduce"]
    assert not reduces.all()
    assert reduces[space.columns["parallelism.zero"] > 1].all()
    assert not space.columns["software.gradients.overlap_param_gather"][~reduces].any()
    assert space.refused["software: software.gradients.overlap_param_gather"] > 0


@pytest.mark.parametrize("software", [CORE, "nemo-2025", {"preset": CORE, "name": "mine"}])
def test_reductions_after_the_backward_are_tried_without_shards(software: Any) -> None:
    """Nothing is gathered there, so that gathers stay as they are, and Megatron-LM takes none that overlap
    beside reductions that do not: of ZeRO-0 both were cut."""
    columns = space_of(job(software), axes=Axes.ALL).columns
    whole = columns["parallelism.zero"] == 0
    reduces = columns["software.gradients.overlap_grad_reduce"][whole]
    gathers = columns["software.gradients.overlap_param_gather"][whole]
    assert {*zip(reduces.tolist(), gathers.tolist(), strict=True)} == {(True, True), (False, False)}


def test_gathers_of_experts_alone_overlap_or_not() -> None:
    """With one replica there is nothing of ZeRO-3 to gather layer by layer but the experts at the end."""
    fix: dict[str, Any] = {f"parallelism.{name}": 2 for name in ("pp", "ep")}
    fix |= {
        "parallelism.tp": 8,
        "parallelism.zero": 3,
        "schedule": "interleaved",
        "parallelism.vpp": 2,
        "training.recompute": "none",
    }
    fix |= {"training.micro_batch": 1, "parallelism.stage_split": "uniform", "parallelism.etp": 1}
    space = space_of(job(model__moe=MOE, parallelism__sequence_parallel=True), fix=fix, axes=Axes.ALL)
    assert {*space.columns["parallelism.dp"].tolist()} == {1}
    steps = {
        on: brief_step(space.scenario_of(int(np.flatnonzero(rows)[0]))).step_time_s
        for on in (False, True)
        if (rows := space.columns["software.gradients.overlap_param_gather"] == on).any()
    }
    assert len({*steps.values()}) == 2


def test_orders_of_ranks_tell_where_the_network_may_be_short() -> None:
    """Which leaf switch a replica and a stage share then matters, also where tp fills hosts."""
    fix = {"parallelism.tp": 8, "parallelism.cp": 1, "parallelism.pp": 2, "schedule": "1f1b"}
    tapered = {"cluster__fabric": {"kind": "fat-tree", "oversubscription": 4}, "cluster__gpus": 64}
    for changes, orders in (({"cluster__gpus": 64}, 1), (tapered, 2)):
        space = space_of(job(**changes), fix=fix, axes=Axes.ALL)
        assert len({*space.columns["parallelism.order"].tolist()}) == orders


def test_shards_of_all_ranks_are_no_other_shards_and_a_scenario_s_own_stay() -> None:
    own = space_of(job(parallelism__zero=1, parallelism__fsdp_shard_size=2), axes=Axes.ALL).columns
    space = space_of(job(), axes=Axes.ALL).columns
    shards, odd = space["parallelism.fsdp_shard_size"], own["parallelism.fsdp_shard_size"]
    ranks = space["parallelism.tp"] * space["parallelism.cp"] * space["parallelism.dp"]
    copied = np.array([one is not None for one in shards])
    assert {*ranks[copied].tolist()} == {16}
    assert any(one == 2 and tp == 1 for one, tp in zip(odd, own["parallelism.tp"], strict=True))
    assert not any(one == 2 and tp == 1 for one, tp in zip(shards, space["parallelism.tp"], strict=True))


def test_one_of_so_many_layers_is_recomputed_in_stages_of_any_size() -> None:
    space = space_of(job("torchtitan-2025"), axes=Axes.ALL)
    kinds = [
        space.values["training.recompute"][code] for code in {*space.codes["training.recompute"].tolist()}
    ]
    assert {one["every"] for one in kinds if isinstance(one, dict) and "every" in one} == {2, 3, 4}


def test_layers_are_recomputed_by_quarters_of_a_virtual_stage_unless_a_scenario_says_so() -> None:
    space = space_of(job(), fix={"parallelism.stage_split": "uniform"}, axes=Axes.ALL)
    chunks = space.columns["parallelism.pp"] * space.columns["parallelism.vpp"]
    found = {
        (int(chunk), one["layers"])
        for chunk, one in zip(chunks, space.columns["training.recompute"], strict=True)
        if isinstance(one, dict) and one["kind"] == "full"
    }
    assert found == {(1, 2), (1, 4), (1, 6), (2, 1), (2, 2), (2, 3), (4, 1)}
    assert space.refused["not a quarter of the layers"] > 0
    odd = {"kind": "full", "layers": 3, "method": "block"}
    own = space_of(job(training__recompute=odd), fix={"parallelism.pp": 1}, axes=Axes.ALL)
    assert odd in [own.values["training.recompute"][code] for code in own.codes["training.recompute"]]


@pytest.mark.slow
def test_what_is_the_same_twice_has_the_same_step() -> None:
    """Of each field, of layouts in which another value of it was cut as the same step once more."""
    own = job(model__moe=MOE, parallelism__zero=1, parallelism__sequence_parallel=True)
    seen = set[str]()
    wide = {name: layout_values(own, Axes.ALL)[name] for name in BESIDES}
    rest = {"parallelism.cp": 1, "training.recompute": "none", "training.micro_batch": 1}
    space = space_of(own, fix=rest, vary=wide)  # named values are kept, whatever they change
    by_field = {rule.about: rule for rule in of_all_axes(own)}
    for i in range(0, len(space), 61):
        draft = space.draft(i)
        for name in BESIDES:
            if by_field[name].breaks(draft) != "the same twice" or name in seen:
                continue
            usual = None if name == "parallelism.fsdp_shard_size" else field_value(own, name)
            settings = {**space.settings(i), name: usual}
            one, other = space.scenario_of(i), own.with_(settings)
            assert brief_step(one).step_time_s == pytest.approx(brief_step(other).step_time_s, rel=1e-9), name
            seen.add(name)
    assert seen == {*BESIDES}


@cache
def wide(software: str, experts: bool, odd: bool) -> tuple[Space, Screened]:
    """The very values that are tried, of a framework, screened; on hosts of eight GPUs, or of six."""
    changes: dict[str, Any] = {**ALONE, "software": software, "training.global_batch": 48}
    if odd:
        changes |= {"cluster.gpus": 12, "cluster.gpus_per_node": 6, "model.num_attention_heads": 12}
        changes |= {"model.hidden_size": 768, "training.seq_length": 1536, "training.micro_batch": 1}
    if experts:
        changes["model.moe"] = MOE
    space = space_of(small().with_(changes), fix={"parallelism.etp": 1}, axes=Axes.ALL)
    return space, screen(space, within=float("inf"))


@pytest.mark.slow
@examples(15)
@given(
    software=st.sampled_from([CORE, "torchtitan-2025", "nanotron-2025", "nemo-2025"]),
    experts=st.booleans(),
    odd=st.booleans(),
    data=st.data(),
)
def test_no_step_is_shorter_than_its_bound_and_memory_is_that_of_the_step(
    software: str, experts: bool, odd: bool, data: st.DataObject
) -> None:
    space, found = wide(software, experts, odd)
    i = data.draw(st.integers(0, len(space) - 1), label="layout")
    result = simulate(space.scenario_of(i))
    whole = max(stage.needed_bytes for stage in result.memory)
    assert found.needed_bytes[i] >= whole * (1 - 1e-9)
    if not space.scenario.software.exchange.records_streams:
        assert found.needed_bytes[i] == pytest.approx(whole, rel=1e-9)
    assert 0 < found.bound_s[i] <= result.step_time_s * (1 + 1e-9)
    assert found.bound_s[int(space.lighter[i])] <= result.step_time_s * (1 + 1e-9)


@pytest.mark.slow
def test_the_proposed_of_all_axes_are_the_best_of_all_that_fit() -> None:
    fix = {
        "parallelism.cp": 1,
        "parallelism.tp": 2,
        "parallelism.pp": 2,
        "parallelism.stage_split": "uniform",
    }
    fix |= {"schedule": "1f1b", "training.micro_batch": 2}
    run = job(parallelism__zero=1, parallelism__sequence_parallel=True)
    found = plan(run, fix=fix, axes="all", top=6, audit=5, jobs=1)
    among, _ = candidates_of(run, fix, {}, lambda _: None, axes=Axes.ALL)
    fits = np.flatnonzero(among.fit_probability >= 0.9).tolist()
    assert len(fits) == found.to_dict()["space"]["fit"] > 100
    steps = sorted(brief_step(among.layouts.replayed(i)).step_time_s for i in fits)
    assert found.certificate.optimal
    assert found.certificate.replayed < len(fits)
    assert [one.figures.step_time_s for one in found.choices] == pytest.approx(steps[:6], rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("pp", [1, 2])
def test_the_proposed_with_exchanges_beside_other_layers_are_the_best_of_all_that_fit(pp: int) -> None:
    fix: dict[str, Any] = {
        "parallelism.cp": 1,
        "parallelism.pp": pp,
        "parallelism.etp": 1,
        "parallelism.vpp": 2 if pp > 1 else 1,
        "parallelism.stage_split": "uniform",
        "parallelism.order": "tp-cp-ep-dp-pp",
        "schedule": "interleaved" if pp > 1 else "none",
        "training.recompute": "none",
        "parallelism.fsdp_shard_size": None,
    }
    run = job(parallelism__zero=1, parallelism__sequence_parallel=True, model__moe=MOE)
    found = plan(run, fix=fix, axes="all", top=6, audit=5, jobs=1)
    among, _ = candidates_of(run, fix, {}, lambda _: None, axes=Axes.ALL)
    fits = np.flatnonzero(among.fit_probability >= 0.9).tolist()
    steps = sorted(brief_step(among.layouts.replayed(i)).step_time_s for i in fits)
    assert {*among.layouts.columns["software.exchange.moe_a2a_overlap"].tolist()} == {False, True}
    assert found.certificate.optimal
    assert found.certificate.replayed < len(fits)
    assert [one.figures.step_time_s for one in found.choices] == pytest.approx(steps[:6], rel=1e-9)


def test_the_overlap_of_exchanges_is_tried_where_experts_lie_on_other_ranks() -> None:
    run = job(model__moe=MOE, parallelism__sequence_parallel=True)
    columns = space_of(run, fix={"training.recompute": "none"}, axes=Axes.ALL).columns
    beside = columns["software.exchange.moe_a2a_overlap"]
    assert beside.any()
    assert (columns["parallelism.ep"][beside] > 1).all()


def test_a_number_is_found_over_all_axes_where_these_are_asked_for() -> None:
    legal = []
    for axes in ("layout", "all"):
        wishes = wishes_of(
            top=1, objective="step-time", deadline_s=None, budget=None, fits=0.9, audit=0, axes=axes
        )
        tried = find(
            "gpus", job(), {"parallelism.tp": 2}, {"cluster.gpus": [4]}, wishes, means=Means(jobs=1)
        ).tried
        legal.append(tried[0].legal)
    assert 0 < legal[0] < legal[1]


def test_a_word_for_axes_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match="layout, all"):
        stepsim.plan(small(), axes="every")


def test_switches_that_no_block_reads_make_no_other_layers() -> None:
    """Whether reductions and gathers overlap is for what moves around blocks. Layouts with both on have the
    bounds that they have by themselves, also in one space with others that have them off."""
    run = load_scenario("llama3-8b-h100").with_(
        {"software": "megatron-core-2025", "parallelism.tp": 2, "parallelism.zero": 1, "parallelism.dp": None}
    )
    alone = {name: [field_value(run, name)] for name in layout_values(run)}
    alone |= {"parallelism.zero": [0, 1, 2], "training.recompute": ["none", "full"]}
    switches = (GRAD_REDUCE, PARAM_GATHER)
    space = space_of(run, vary=alone | {name: [True, False] for name in switches})
    rows_of = [*zip(*(space.columns[name].tolist() for name in switches), strict=True)]
    profile = calibrated_profile(gpu_of(run.cluster), run.calibration)
    bounds = {}
    for both in {*rows_of}:
        mine = space_of(run, vary=alone | {name: [one] for name, one in zip(switches, both, strict=True)})
        bounds[both] = screen(mine, within=float("inf")).bound_s.tolist()
        assert len(tables_of(mine, 0, profile).layers) == len(tables_of(space, 0, profile).layers)
    found = screen(space, within=float("inf")).bound_s.tolist()
    for both, alone_s in bounds.items():
        assert alone_s == [one for one, row in zip(found, rows_of, strict=True) if row == both]


def layout(**fields: Any) -> Scenario:
    """A model with experts in such a layout, unchecked."""
    base = job(model__moe=MOE, parallelism__tp=1)
    sizes = {"tp": 1, "cp": 1, "dp": 1, "pp": 1, "vpp": 1, "ep": 1, "etp": 1} | fields
    return base.model_copy(update={"parallelism": base.parallelism.model_copy(update=sizes)})


def test_gradients_are_reduced_where_several_ranks_hold_the_same_parameters() -> None:
    assert not _reduces(layout(pp=16))
    assert _reduces(layout(pp=8, dp=2))
    assert _reduces(layout(pp=8, cp=2))
    assert _reduces(layout(pp=8, dp=2, ep=2))  # the parameters beside experts
    assert _reduces(layout(pp=8, tp=2))  # experts alone, which tensor parallelism does not cut
    assert not _reduces(layout(pp=8, tp=2, etp=2))
    assert not _reduces(layout(pp=8, tp=2, ep=2))


def test_a_forward_and_a_backward_pair_up_where_another_microbatch_may_come_between() -> None:
    several, one = (layout(dp=dp, ep=2) for dp in (2, 16))
    assert (several.num_microbatches, one.num_microbatches) == (8, 1)
    assert _pairs(several)
    assert not _pairs(one)
    assert not _pairs(layout(dp=2))
    assert _pairs(layout(dp=16, ep=2, pp=2))
