"""Norms of each head's queries and keys: parameters, kernels, what they keep, what distributed
heads cost, and which models have them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from importing import scenario as imported_scenario
from small_scenarios import lowered, scenario
from validation_cases import case_document

from stepsim.calibration.cases.case import build
from stepsim.calibration.cases.model_facts import known_facts
from stepsim.calibration.cases.preset import model_facts
from stepsim.hardware.calibrated.overlay import load_profile
from stepsim.hardware.gpus import get_gpu
from stepsim.kernels.cost import kernel_seconds
from stepsim.kernels.kernel import MemoryBound
from stepsim.kernels.memory_bound import ADDERS, PART_S
from stepsim.schedules.orders.action import ActionKind
from stepsim.sim.lowering.layers.local_shape import local_shape_of_model
from stepsim.sim.lowering.parameters import attention_parameters
from stepsim.sim.lowering.plan import StepPlan
from stepsim.sim.program.program import Compute, Op
from stepsim.sim.scenario.model.catalogue import get_model
from stepsim.sim.simulate import simulate

NAMES = ("keys in a row", "norms of heads", "norms of heads backward", "weight gradient of heads' norm")
DTENSOR_S, LAUNCH_S = 9e-5, 6e-6
MEGATRON = (
    "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 4 --hidden-size 1024 --num-attention-heads 8"
    " --seq-length 2048 --max-position-embeddings 2048 --vocab-size 32000 --micro-batch-size 1"
    " --global-batch-size 8 --bf16 --swiglu"
)


def heads(preset: str = "megatron-core-2025", *, qk_norm: bool = True, **fields: Any) -> Any:
    run = scenario(software=preset, num_query_groups=4, num_attention_heads=8, **fields)
    return run.with_({"model.qk_norm": qk_norm})


def kernels(run: Any) -> Counter[str]:
    return Counter(span.name for span in simulate(run).iter_spans() if span.name in NAMES)


def ops(plan: StepPlan, kind: ActionKind, name: str) -> list[Op]:
    (layer,) = plan.stages[0].runs
    return [op for op in plan.blocks.layer_of(kind, layer).ops if op.name == name]


@pytest.mark.parametrize("parts", [100_000, 1e9])
def test_a_weights_gradient_takes_as_long_as_the_blocks_that_a_gpu_holds(parts: float) -> None:
    """A GH200 was measured at 71.9 to 82.3 us, whatever the rows (memory_bound.PART_S)."""
    gpu, profile = get_gpu("GH200-96GB"), load_profile("GH200-96GB")
    alone = kernel_seconds(MemoryBound(hbm_bytes=0.0), gpu, profile)
    added = kernel_seconds(MemoryBound(hbm_bytes=0.0, parts=parts), gpu, profile)
    assert 71.9e-6 < added - alone < 82.3e-6


def test_few_rows_have_few_parts() -> None:
    gpu, profile = get_gpu("GH200-96GB"), load_profile("GH200-96GB")
    alone = kernel_seconds(MemoryBound(hbm_bytes=0.0), gpu, profile)
    half = kernel_seconds(MemoryBound(hbm_bytes=0.0, parts=8 * gpu.sms), gpu, profile)
    whole = kernel_seconds(MemoryBound(hbm_bytes=0.0, parts=16 * gpu.sms), gpu, profile)
    assert half - alone == pytest.approx((whole - alone) / 2)


def test_a_gpu_holds_as_many_parts_as_its_multiprocessors() -> None:
    def added_s(name: str) -> float:
        gpu, profile = get_gpu(name), load_profile(name)
        alone, whole = (kernel_seconds(MemoryBound(hbm_bytes=0.0, parts=n), gpu, profile) for n in (0, 1e9))
        return whole - alone

    most, fewer = get_gpu("GB200-NVL72").sms, get_gpu("GH200-96GB").sms
    assert added_s("GB200-NVL72") / added_s("GH200-96GB") == pytest.approx(most / fewer)


def test_what_runs_again_by_operators_norms_and_copies_again() -> None:
    plain, again = heads(), heads().with_({"training.recompute": {"kind": "operators", "keep": ["mm"]}})
    once, twice = kernels(plain), kernels(again)
    for name in NAMES[:2]:
        assert twice[name] == 2 * once[name]
    assert twice[NAMES[2]] == once[NAMES[2]]
    rows = [sum(s.name == "queries in a row" for s in simulate(run).iter_spans()) for run in (plain, again)]
    assert rows[1] == 2 * rows[0]


def test_queries_and_keys_are_normed_in_each_layer_and_microbatch() -> None:
    run = heads()
    training = run.training
    turns = run.model.num_layers * training.global_batch // training.micro_batch // run.parallelism.dp
    assert not kernels(heads(qk_norm=False))
    assert kernels(run) == {name: turns * (2 if "weight" in name else 1) for name in NAMES}


def test_their_weights_are_parameters() -> None:
    local = lowered(heads(kv_channels=128)).plan.local
    added = [one for one in attention_parameters(local) if one.name.endswith(" norm")]
    assert [one.shape for one in added] == [(128,), (128,)]


def test_torchtitan_norms_and_turns_heads_that_are_distributed() -> None:
    titan, plain = (
        lowered(heads(preset, tp=4, position="rope")).plan for preset in ("torchtitan-2025", "generic-fsdp")
    )
    norms, turned = (sum(op.host_s for op in forward_ops(titan, name)) for name in ("norms of heads", "rope"))
    assert norms == pytest.approx(16 * (DTENSOR_S + LAUNCH_S))
    assert turned == pytest.approx(10 * (DTENSOR_S + LAUNCH_S))
    assert sum(op.host_s for op in forward_ops(plain, "norms of heads")) < norms / 2
    llama = lowered(heads("torchtitan-2025", qk_norm=False, tp=4, position="rope")).plan
    assert sum(op.host_s for op in forward_ops(llama, "rope")) == pytest.approx(6 * LAUNCH_S)


def forward_ops(plan: Any, name: str) -> list[Any]:
    """What runs under that name in a forward, with its parts: ``name, halves``."""
    return [op for part in PARTS for op in ops(plan, ActionKind.FORWARD, f"{name}{part}")]


@pytest.mark.parametrize(("groups", "copied"), [(4, 4), (1, 8 + 1), (8, 8 + 8)])
def test_queries_are_copied_for_their_norm_unless_a_reshape_did(groups: int, copied: int) -> None:
    """Heads that are read and written; each of queries and keys by a launch."""
    run = heads().with_({"model.num_query_groups": groups})
    local = lowered(run).plan.local
    sizes = {span.bytes for span in simulate(run).iter_spans() if span.name == "keys in a row"}
    assert sizes == {2.0 * local.tokens * copied * local.head_dim * local.element_bytes}


PARTS = ("", ", by element", ", halves", ", sum", ", to FP32")


def bytes_of(run: Any, name: str) -> float:
    """What one kernel of that name moves in the run."""
    (size,) = {span.bytes for span in simulate(run).iter_spans() if span.name == name}
    return size


@pytest.mark.parametrize(
    ("fused", "forward", "backward"),
    [
        (True, 2 * 2, 3 * 2),  # read, written; two read and one written, of 16 bits
        (False, 4 * 2 + 28, 8 * 2 + 76),  # the chain of any norm that torch runs
    ],
)
def test_a_norm_of_heads_moves_what_any_norm_does(fused: bool, forward: float, backward: float) -> None:
    run = heads().with_({"software.kernels.fused_norm": fused})
    local = lowered(run).plan.local
    elements = local.tokens * (local.heads + local.kv_heads) * local.head_dim
    for name, moved in (("norms of heads", forward), ("norms of heads backward", backward)):
        parts = [name] if fused else [name, f"{name}, by element"]
        assert sum(bytes_of(run, part) for part in parts) == moved * elements


def test_a_block_of_the_weights_gradient_has_four_rows() -> None:
    """So few rows that all blocks are on the GPU: twice the heads take twice as long to add up."""
    run = heads().with_({"training.seq_length": 512, "training.micro_batch": 1})
    plan = lowered(run).plan
    (layers,) = plan.stages[0].runs
    ops = plan.blocks.layer_of(ActionKind.BACKWARD, layers).ops
    queries, keys = (op.work.seconds for op in ops if op.name == NAMES[3] and isinstance(op.work, Compute))
    more = (plan.local.heads - plan.local.kv_heads) * plan.local.tokens
    assert queries - keys == pytest.approx(more / 4 / ADDERS * PART_S)


def test_what_is_normed_by_a_chain_is_kept_in_32_bits_as_well() -> None:
    def kept(**fields: Any) -> float:
        return (
            simulate(heads(**fields).with_({"software.kernels.fused_norm": False}))
            .memory[0]
            .terms["activations"]
        )

    local, layers = lowered(heads()).plan.local, heads().model.num_layers
    size = local.tokens * (local.heads + local.kv_heads) * local.head_dim * local.element_bytes
    assert kept() - kept(qk_norm=False) == pytest.approx(layers * 3 * size)


def test_a_weight_each_for_queries_and_keys() -> None:
    with_norms, without = (
        local_shape_of_model(get_model("qwen3-8b").model_copy(update={"qk_norm": on})) for on in (True, False)
    )
    names = {p.name for p in attention_parameters(with_norms)} - {
        p.name for p in attention_parameters(without)
    }
    assert names == {"query norm", "key norm"}


def test_a_compiler_norms_with_positions() -> None:
    run = heads("torchtitan-2025").with_({"software.kernels.torch_compile": True})
    assert set(kernels(run)) == {"norms of heads backward"}


def test_a_step_is_longer_and_keeps_what_is_normed() -> None:
    plain, normed = simulate(heads(qk_norm=False)), simulate(heads())
    local = lowered(heads()).plan.local
    kept = local.tokens * (local.heads + local.kv_heads) * local.head_dim * local.element_bytes
    assert normed.step_time_s > plain.step_time_s
    assert normed.memory[0].terms["activations"] - plain.memory[0].terms["activations"] >= kept


@pytest.mark.parametrize("name", ["qwen3-8b", "qwen3-32b", "qwen3-30b-a3b", "qwen3-235b-a22b"])
def test_qwen3_has_them_in_the_catalogue_and_in_cases_of_its_shape(name: str) -> None:
    model = get_model(name)
    assert model.qk_norm
    assert known_facts(model.model_dump(exclude={"qk_norm"}))["qk_norm"] is True
    assert known_facts(model.model_dump() | {"qk_norm": False})["qk_norm"] is True


def test_llamas_facts_add_no_norms_of_heads() -> None:
    llama = get_model("llama3.1-8b").model_dump()
    assert known_facts(llama) == llama


def test_a_cases_text_says_that_heads_are_normed() -> None:
    software = replace(build(case_document()).software, framework="Megatron core (norms of heads)")
    assert model_facts(software)["qk_norm"] is True


def test_latents_are_normed_in_any_case() -> None:
    model = get_model("deepseek-v3").model_dump()
    with pytest.raises(ValueError, match="qk_norm"):
        type(get_model("deepseek-v3"))(**model | {"qk_norm": True})


def test_megatrons_flag_is_read() -> None:
    given = {"gpus": "8"}
    assert imported_scenario({"pretrain.sh": f"{MEGATRON} --qk-layernorm"}, given).model.qk_norm
    assert not imported_scenario({"pretrain.sh": MEGATRON}, given).model.qk_norm
