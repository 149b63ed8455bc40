"""The screens of layouts: memory is that of one layout, and no step is shorter than its bound."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples
from small_scenarios import presets_for, scenario

from stepsim.schedules.pipeline import get, names
from stepsim.sim.brief.search import Search
from stepsim.sim.lowering.without_messages import RankWithoutMessages
from stepsim.sim.plan.axes import layout_values
from stepsim.sim.plan.fields import field_value
from stepsim.sim.plan.screen import screen as module
from stepsim.sim.plan.screen.screen import screen
from stepsim.sim.plan.space import Space, space_of
from stepsim.sim.program.program import Block, Compute, Op
from stepsim.sim.program.solo import solo_ends
from stepsim.sim.result.result import Result
from stepsim.sim.scenario.load import load_scenario, scenario_from_document
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.simulate import simulate

AXES: dict[str, list[Any]] = {
    "parallelism.tp": [1, 2, 4],
    "parallelism.cp": [1, 2],
    "parallelism.pp": [1, 2, 4],
    "parallelism.ep": [1, 2, 4],
    "parallelism.etp": [1, 2],
    "parallelism.sequence_parallel": [False, True],
    "parallelism.stage_split": ["uniform", "uneven_unspecified", "flops_balanced"],
    "parallelism.zero": [0, 1, 2, 3],
    "parallelism.fsdp_shard_size": [None, 2],
    "parallelism.order": ["tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"],
    "training.micro_batch": [1, 2],
    "training.recompute": [
        "none",
        "selective",
        "full",
        "op_selective",
        {"kind": "full", "layers": 1},
        {"kind": "full", "every": 2},
        {"kind": "full", "layers": 1, "method": "block"},
        {"kind": "full", "layers": 2, "method": "uniform"},
        {"kind": "modules", "modules": ["layernorm", "mlp"]},
    ],
    "training.activation_offload": [False, True],
    "software.gradients.overlap_grad_reduce": [False, True],
    "software.gradients.overlap_param_gather": [False, True],
    "software.exchange.tp_comm_overlap": [False, True],
    "software.exchange.moe_a2a_overlap": [False, True],
}

MOE = {"num_experts": 4, "topk": 2, "expert_ffn_hidden_size": 256}


@st.composite
def what_comes_and_goes(draw: st.DrawFn) -> dict[str, Any]:
    """Fields by which a rank holds more or less at some moments of a step; often a preset's own."""
    if draw(st.booleans()):
        return {}
    copies = ("persistent_gradients", "reducer_copy", "zero1_broadcasts")
    loss = {"cross_entropy": draw(st.sampled_from(["eager", "gathered", "fused"])), "logits_fp32": True}
    return {
        "gradients": {name: draw(st.booleans()) for name in copies},
        "kernels": {
            "repeats_kv": draw(st.booleans()),
            "loss_chunks": draw(st.sampled_from([1, 2, 8])),
            "optimizer_implementation": draw(st.sampled_from(["fused", "foreach", "for-loop"])),
        }
        | loss,
        "pipeline": {
            "keeps_received": draw(st.booleans()),
            "keeps_outputs": draw(st.sampled_from(["none", "last", "all"])),
        },
    }


@st.composite
def spaces(draw: st.DrawFn, *, recompute: bool = False, uneven: bool = False, pairs: bool = False) -> Space:
    """A space with any schedule and preset, dense or with experts, over a few axes; ``recompute`` among them
    where asked for. ``uneven``: on hosts of six or three GPUs, of which groups fill parts. ``pairs``: experts
    on other ranks, whose exchanges overlap layers of another microbatch."""
    some = ["none", "none", "interleaved", "interleaved", *filter(_pairs, names())]
    schedule = draw(st.sampled_from(some if pairs else ["none", *names()]), label="schedule")
    preset = draw(st.sampled_from(presets_for("H100-SXM5-80GB")), label="preset")
    moe, mtp = pairs or draw(st.booleans(), label="experts"), draw(st.sampled_from([0, 0, 1]), label="mtp")
    held = draw(what_comes_and_goes(), label="held")
    if preset.startswith("nanotron") and held:  # which shards each parameter
        held["gradients"]["zero1_broadcasts"] = False
    own = scenario(
        gpu="H100-SXM5-80GB",
        interconnect="ib-ndr400-x8",
        zero=1 if held.get("gradients", {}).get("zero1_broadcasts") else 0,
        software={
            "preset": preset,
            "sharding": {
                "reduce": draw(st.sampled_from(["each", "each", "last"]), label="reduce"),
                "experts_whole": moe and draw(st.sampled_from([False, False, True]), label="experts whole"),
            },
            **held,
        },
        vocab_size=draw(st.sampled_from([512, 512, 32_768]), label="vocabulary"),
        optimizer=draw(st.sampled_from(["adamw", "adamw", "sgd", "muon", "adafactor"]), label="optimizer"),
        mlp=draw(st.sampled_from(["swiglu", "gelu"])),
        tied_embeddings=draw(st.booleans(), label="tied"),
        precision=draw(st.sampled_from(["bf16", "fp32"])),
        dp=24 if uneven else 8,
        microbatches=draw(st.sampled_from([1, 2, 4, 8, 12])),
        gpus_per_node=draw(st.sampled_from([3, 6] if uneven else [4, 8])),
        mtp_layers=mtp,
        **({"moe": MOE} if moe else {}),
    )
    axes = draw(st.lists(st.sampled_from(sorted(AXES)), min_size=2, max_size=5, unique=True), label="axes")
    vary = {name: AXES[name] for name in [*axes, *(["training.recompute"] if recompute else [])]}
    if schedule != "none":
        chunks = get(schedule).chunks
        vary |= {"schedule": [schedule], "parallelism.pp": [2, 3, 4] if uneven else [2, 4]}
        vary |= {"parallelism.vpp": [1, 2] if chunks == 1 else [chunks]}
    if pairs:
        vary |= {"parallelism.zero": AXES["parallelism.zero"]}
        vary |= {"software.exchange.moe_a2a_overlap": [True], "parallelism.ep": [2, 4]}
    rest = {name: values[:1] for name, values in layout_values(own).items() if name not in vary}
    return space_of(own, vary={**rest, **vary})


def _pairs(schedule: str) -> bool:
    """Whether a schedule runs forwards beside backwards, or may."""
    return get(schedule).overlaps


def assert_needed(run: Scenario, result: Result, needed_bytes: float) -> None:
    """What the fullest stage needs, or no less where hosts may get further ahead."""
    whole = max(stage.needed_bytes for stage in result.memory)
    if run.software.exchange.records_streams:
        assert needed_bytes >= whole * (1 - 1e-9)
    else:
        assert needed_bytes == pytest.approx(whole, rel=1e-9)


@pytest.mark.slow
@examples(15)
@given(space=spaces(), data=st.data())
def test_memory_is_that_of_the_step_and_no_step_is_shorter_than_its_bound(
    space: Space, data: st.DataObject
) -> None:
    if not len(space):
        return
    found = screen(space, within=float("inf"))
    i = data.draw(st.integers(0, len(space) - 1), label="layout")
    run = space.scenario_of(i)
    result = simulate(run)
    assert found.capacity_bytes[i] == result.memory[0].capacity_bytes
    assert_needed(run, result, found.needed_bytes[i])
    assert found.bound_s[i] <= result.step_time_s * (1 + 1e-9)
    assert found.bound_s[i] > 0
    assert Search().floor_of(run) <= result.step_time_s * (1 + 1e-9)
    assert Search().least_of(run).step_time_s <= result.step_time_s * (1 + 1e-9)
    lighter = int(space.lighter[i])
    assert found.bound_s[lighter] <= result.step_time_s * (1 + 1e-9)
    assert Search().floor_of(space.scenario_of(lighter)) <= result.step_time_s * (1 + 1e-9)


@pytest.mark.slow
@examples(15)
@given(space=spaces(uneven=True), data=st.data())
def test_no_step_of_ranks_that_are_placed_unevenly_is_shorter_than_its_bounds(
    space: Space, data: st.DataObject
) -> None:
    """Groups cross hosts at some ranks and not at others, and the slowest of them is known."""
    if not len(space):
        return
    i = data.draw(st.integers(0, len(space) - 1), label="layout")
    run = space.scenario_of(i)
    result, found = simulate(run), screen(space, within=float("inf"))
    assert_needed(run, result, found.needed_bytes[i])
    assert 0.0 < found.bound_s[i] <= result.step_time_s * (1 + 1e-9)
    assert Search().floor_of(run) <= result.step_time_s * (1 + 1e-9)


@pytest.mark.slow
@examples(15)
@given(space=spaces(pairs=True), data=st.data())
def test_no_step_with_exchanges_beside_other_layers_is_shorter_than_its_bounds(
    space: Space, data: st.DataObject
) -> None:
    """Without a pipeline and with one, with and without gathers and reductions beside pairs."""
    if not len(space):
        return
    run = space.scenario_of(i := data.draw(st.integers(0, len(space) - 1), label="layout"))
    step_s, found = simulate(run).step_time_s, screen(space, within=float("inf"))
    assert 0.0 < found.bound_s[i] <= step_s * (1 + 1e-9)
    assert found.bound_s[int(space.lighter[i])] <= step_s * (1 + 1e-9)
    assert Search().floor_of(run) <= step_s * (1 + 1e-9)


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(space=spaces(recompute=True), data=st.data())
def test_what_recomputes_nothing_bounds_what_recomputes(space: Space, data: st.DataObject) -> None:
    """Also of what recomputes: its bound is at least that of the one that is the same but for that."""
    others = [i for i in range(len(space)) if int(space.lighter[i]) != i]
    if not others:
        return
    i = data.draw(st.sampled_from(others), label="layout")
    settings_of = space.settings(i), space.settings(int(space.lighter[i]))
    assert settings_of[0] | {"training.recompute": "none"} == settings_of[1]
    lighter, run = space.scenario_of(int(space.lighter[i])), space.scenario_of(i)
    step_s, search = simulate(run).step_time_s, Search()
    assert search.floor_of(lighter) <= step_s * (1 + 1e-9)
    if search.floor_of(lighter) > 0.0:
        assert search.floor_of(run) > 0.0


@given(
    kernels=st.lists(
        st.tuples(st.floats(0.01, 2.0), st.sampled_from(["memory", "math", "all SMs"])),
        min_size=1,
        max_size=6,
    ),
    taken=st.floats(0.01, 0.9),
    until_s=st.floats(0.0, 20.0),
)
def test_kernels_do_without_taken_sms_as_long_as_these_are_taken(
    kernels: list[tuple[float, str]], taken: float, until_s: float
) -> None:
    """Each math-bound kernel gets the rest of the SMs up to that moment, and all of them from there on; one
    that needs all of them gets half of its speed at most."""
    rates = {"memory": 1.0, "math": 1.0 - taken, "all SMs": min(0.5, 1.0 - taken)}
    works = [
        Compute(seconds, "memory-bound" if bound == "memory" else "gemm", static_schedule=bound == "all SMs")
        for seconds, bound in kernels
    ]
    block = Block("kernels", tuple(Op(f"{k}", "compute", "", work) for k, work in enumerate(works)))
    end_s = 0.0
    for seconds, bound in kernels:
        slowly = min(seconds, rates[bound] * max(0.0, until_s - end_s))
        end_s += slowly / rates[bound] + seconds - slowly
    assert solo_ends(block, sms=100, taken=taken, until_s=until_s)[0] == pytest.approx(end_s, rel=1e-12)


@pytest.mark.parametrize("schedule", ["1f1b", "interleaved", "zb-h1"])
@pytest.mark.parametrize("preset", ["megatron-core-2025", "nanotron-2024", "torchtitan-2024"])
def test_no_step_of_products_in_two_passes_is_shorter_than_its_bounds(preset: str, schedule: str) -> None:
    """Layers wide enough for GEMMs that need all SMs, beside gathers, reductions and messages."""
    own = scenario(
        gpu="H100-SXM5-80GB",
        interconnect="ib-ndr400-x8",
        software={"preset": preset, "kernels": {"hopper_products": "two-passes"}},
        hidden_size=4096,
        num_attention_heads=32,
        ffn_hidden_size=12288,
        seq_length=2048,
        precision="bf16",
        dp=8,
        microbatches=4,
    )
    vary: dict[str, list[Any]] = {
        "parallelism.tp": [1, 2],
        "parallelism.zero": [0, 1, 2, 3] if schedule == "1f1b" else [0, 3],
        "parallelism.vpp": [2] if schedule == "interleaved" else [1],
    }
    fixed = {name: values[:1] for name, values in layout_values(own).items() if name not in vary}
    space = space_of(own, vary={**fixed, **vary, "schedule": [schedule], "parallelism.pp": [2]})
    found, search = screen(space, within=float("inf")), Search()
    assert len(space)
    for i in range(len(space)):
        step_s = simulate(space.scenario_of(i)).step_time_s
        assert 0.0 < found.bound_s[i] <= step_s * (1 + 1e-9)
        assert search.floor_of(space.scenario_of(i)) <= step_s * (1 + 1e-9)
        assert search.least_of(space.scenario_of(i)).step_time_s <= step_s * (1 + 1e-9)


@pytest.mark.parametrize(
    ("layout", "least"),
    [
        ({"parallelism.pp": 1, "parallelism.zero": 1, "schedule": "none"}, (0.9, 0.96)),
        ({"parallelism.pp": 1, "parallelism.zero": 3, "schedule": "none"}, (0.95, 0.95)),
        ({"parallelism.pp": 2, "parallelism.vpp": 4, "schedule": "interleaved"}, (0.9, 0.95)),
    ],
    ids=["no pipeline", "sharded parameters", "interleaved"],
)
def test_a_step_with_exchanges_beside_other_layers_is_little_longer_than_its_bounds(
    layout: dict[str, Any], least: tuple[float, float]
) -> None:
    """Of many microbatches, whose order is known from few of them; of shards, with what is gathered and
    reduced beside each pair."""
    fields: dict[str, Any] = {"parallelism.vpp": 1, "parallelism.dp": None, "parallelism.tp": 2}
    fields |= {
        "software.exchange.moe_a2a_overlap": True,
        "parallelism.sequence_parallel": True,
        "training.recompute": "none",
    }
    run = load_scenario("mixtral-8x7b-h100").with_(fields | layout)
    space = space_of(run, vary={name: [field_value(run, name)] for name in layout_values(run)})
    step_s = simulate(run).step_time_s
    assert least[0] * step_s < screen(space, within=float("inf")).bound_s[0] <= step_s
    assert least[1] * step_s < Search().floor_of(run) <= step_s


@pytest.mark.parametrize(
    ("layout", "least"),
    [
        ({"parallelism.pp": 4, "parallelism.vpp": 6, "schedule": "interleaved"}, 0.99),
        ({"parallelism.pp": 4, "parallelism.vpp": 24, "schedule": "interleaved"}, 0.997),
        ({"parallelism.pp": 4, "parallelism.vpp": 1, "schedule": "1f1b"}, 0.99),
        ({"parallelism.pp": 8, "parallelism.vpp": 1, "schedule": "1f1b", "parallelism.zero": 0}, 0.99),
        ({"parallelism.pp": 2, "parallelism.vpp": 2, "schedule": "zb-v"}, 0.95),
        ({"parallelism.pp": 4, "parallelism.vpp": 6, "schedule": "interleaved", "parallelism.zero": 2}, 0.99),
    ],
)
def test_a_step_is_little_longer_than_its_actions(
    layout: dict[str, Any], least: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reductions hold SMs beside them and are awaited at the end: screening knows nothing of either. Actions
    that are nothing but their blocks are as long as those that are written."""
    run = load_scenario("gpt3-175b-h100").with_(
        {
            "cluster.gpus": 128,
            "training.global_batch": 192,
            "training.micro_batch": 1,
            "training.recompute": "selective",
            "parallelism.dp": None,
            **layout,
        }
    )
    step_s = simulate(run).step_time_s
    floor_s = Search().floor_of(run)
    assert least * step_s < floor_s <= step_s
    monkeypatch.setattr(RankWithoutMessages, "pieces_of", lambda _rank, _action: ())
    assert Search().floor_of(run) == floor_s


@pytest.mark.parametrize(
    ("layout", "least"),
    [
        ({"pp": 3, "zero": 1, "stage_split": "embedding_and_loss_as_layers"}, 0.85),
        ({"pp": 1, "zero": 3}, 0.85),
    ],
    ids=["a stage over two racks", "shards over two racks"],
)
def test_exchanges_of_the_slowest_rank_are_known(layout: dict[str, Any], least: float) -> None:
    """Groups of 16 cross from one rack of 72 to the next at a few ranks, for which all others wait."""
    document = {
        "model": "grok-1",
        "cluster": {"gpu": "GB200-NVL72", "gpus": 144, "interconnect": "ib-ndr400-x4"},
        "parallelism": {"tp": 4, "cp": 4, "ep": 4, "etp": 4, "sequence_parallel": True} | layout,
        "training": {"global_batch": 288, "micro_batch": 1, "seq_length": 8192, "precision": "bf16"},
        "schedule": "1f1b" if layout["pp"] > 1 else "none",
        "software": "megatron-bridge-2026",
    }
    run = scenario_from_document(document, "grok-1")
    space = space_of(run, vary={name: [field_value(run, name)] for name in layout_values(run)})
    assert len(space) == 1
    step_s, floor_s = simulate(run).step_time_s, Search().floor_of(run)
    bound_s = float(screen(space, within=float("inf")).bound_s[0])
    assert least * step_s < bound_s <= step_s * (1 + 1e-9)
    assert bound_s < floor_s <= step_s * (1 + 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kept", "by_width"),
    [("llama3-8b-h100", "training.micro_batch", False), ("qwen3-30b-a3b-h100", "parallelism.pp", True)],
)
def test_layouts_in_parts_are_screened_as_all_at_once(
    name: str, kept: str, by_width: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = load_scenario(name)
    space = space_of(run, fix={kept: field_value(run, kept)})
    monkeypatch.setattr(module, "MANY", len(space) + 1)
    whole = screen(space)
    monkeypatch.setattr(module, "MANY", 1)
    for cores in (1, 3):
        monkeypatch.setattr(module, "cores", lambda cores=cores: cores)
        found = screen(space)
        for column in ("needed_bytes", "held_bytes", "capacity_bytes", "bound_s"):
            assert (getattr(found, column) == getattr(whole, column)).all()
    parts = [rows for _, together in module._parts(space, 0, None) for rows in together]
    widths = [set(space.columns["parallelism.tp"][rows].tolist()) for rows in parts]
    assert (not set.intersection(*widths)) == by_width
