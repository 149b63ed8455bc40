"""torch.autocast over FP32 parameters, and GELU by its formula: bytes that kernels move, memory, refusals."""

from __future__ import annotations

from typing import Any

import pytest
from autocast_runs import AUTOCAST, LLAMA, PLAIN, job, kept, moved
from refusals import refused_at
from small_scenarios import every_op, lowered

from stepsim.calibration.cases.framework_text import fields_said
from stepsim.sim.lowering.layers.local_shape import local_shape_of
from stepsim.sim.lowering.state.activations import activation_bytes
from stepsim.sim.plan.axes import layout_values
from stepsim.sim.plan.screen.screen import screen
from stepsim.sim.plan.space import space_of
from stepsim.sim.program.program import Collective
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.simulate import simulate

HIDDEN, LAYERS, WIDE, ROWS, BOTH = 256, 8, 1024, 2 * 128, 2 + 4


def gathered(run: Scenario) -> float:
    """Bytes of parameters that the first rank gathers in a step."""
    (program,) = lowered(run).programs.classes
    return sum(
        count * op.work.transfer.bytes
        for op, count in every_op(program)
        if isinstance(op.work, Collective) and op.work.kind == "all_gather"
    )


def test_each_forward_casts_all_matrices() -> None:
    run = job(microbatches=3).with_(AUTOCAST)
    layer = HIDDEN * (4 * HIDDEN + 2 * WIDE)
    weights = LAYERS * layer + HIDDEN * run.model.embedding_rows
    assert moved(run, "cast weights")[0] == 3 * weights * BOTH
    again = run.with_({"training.recompute": "full"})
    upto = layer - HIDDEN * WIDE  # its last GEMM is not run again
    assert moved(again, "cast weights")[0] == 3 * (weights + LAYERS * upto) * BOTH
    assert moved(job(), "cast weights") == (0.0, 0)


@pytest.mark.parametrize(("model", "readers"), [(PLAIN, 2), (LLAMA, 5)])
def test_each_product_casts_the_rows_that_a_norm_wrote(model: dict[str, Any], readers: int) -> None:
    """Q, K and V, and both branches of a gate, are matrices of their own where the stack keeps them apart."""
    run = job(model=model, microbatches=1).with_(AUTOCAST)
    times = LAYERS * readers + 1  # the head
    elements = ROWS * HIDDEN
    assert moved(run, "cast rows")[0] == times * elements * BOTH
    assert moved(run, "row gradients to FP32")[0] == times * elements * BOTH
    both = (readers - 2) * 3 * 4 - (1 if readers == 5 else 0) * 3 * 2  # in FP32; one sum is told of 16 bit
    assert moved(run, "row gradients add")[0] == LAYERS * elements * both
    compiled = run.with_({"software.kernels.torch_compile": True})
    for name in ("cast rows", "row gradients to FP32", "row gradients add", "branch gradient to 16 bit"):
        assert moved(compiled, name) == (0.0, 0)
    assert moved(compiled, "cast weights")[0] > 0.0


def test_norms_and_the_stream_are_of_fp32() -> None:
    wide, narrow = job(microbatches=1).with_(AUTOCAST), job(microbatches=1)
    norms = (2 * LAYERS + 1) * ROWS * HIDDEN
    assert moved(wide, "norm")[0] == norms * (4 + 4)
    assert moved(narrow, "norm")[0] == norms * (2 + 2)
    assert moved(wide, "norm backward")[0] == 2 * moved(narrow, "norm backward")[0]
    compiled = wide.with_({"software.kernels.torch_compile": True})
    assert moved(compiled, "norm")[0] == norms * (4 + 2)
    adds = 2 * LAYERS * ROWS * HIDDEN
    assert moved(wide, "branch gradient to 16 bit")[0] == adds * BOTH
    difference = moved(wide, "bias, dropout, add")[0] - moved(narrow, "bias, dropout, add")[0]
    assert difference == adds * 2 * (4 - 2)  # read and written; what is added is of 16 bit


def test_a_chain_has_no_casts_where_its_input_is_of_fp32() -> None:
    wide = job(model=LLAMA, microbatches=1).with_(AUTOCAST)
    norms = (2 * LAYERS + 1) * ROWS * HIDDEN
    assert moved(wide, "norm")[0] == norms * (2 * 4 + 4)  # square, mean
    assert moved(wide, "norm, by element")[0] == norms * (2 * 4 + 2 * 4)  # product, weight
    both = moved(wide, "norm backward")[0] + moved(wide, "norm backward, by element")[0]
    assert both == norms * (8 * 2 + 76)


def test_gradients_are_cast_before_they_are_added_and_nothing_is_copied_after() -> None:
    narrow, wide = job(microbatches=2), job(microbatches=2).with_(AUTOCAST)
    more = moved(wide, "accumulate gradient")[0] - moved(narrow, "accumulate gradient")[0]
    more += moved(wide, "gradient cast")[0]
    table = HIDDEN * narrow.model.embedding_rows
    parameters = LAYERS * HIDDEN * (4 * HIDDEN + 2 * WIDE) + table
    # FP32 written and read once more; a look-up's gradient is FP32 as it comes, and is read so
    assert more == 2 * (parameters * 2 * 4 + table * 2)
    assert moved(narrow, "copy parameters")[0] > 0.0
    assert moved(wide, "copy parameters") == (0.0, 0)


@pytest.mark.parametrize("implementation", ["fsdp1", "fsdp2"])
def test_shards_are_gathered_as_they_are(implementation: str) -> None:
    narrow = job(dp=4, zero=3).with_({"software.sharding.implementation": implementation})
    wide = narrow.with_(AUTOCAST)
    assert gathered(wide) == pytest.approx(2 * gathered(narrow), rel=1e-9)
    matrices = LAYERS * HIDDEN * (4 * HIDDEN + 2 * WIDE) + HIDDEN * narrow.model.embedding_rows
    microbatches = narrow.num_microbatches
    assert moved(narrow, "gradient cast")[0] == 0.0
    assert (
        moved(wide, "gradient cast")[0] == microbatches * matrices * BOTH
    )  # a look-up's is FP32 as it comes


def test_a_head_in_chunks_casts_its_matrix_and_its_rows() -> None:
    run = job(microbatches=1).with_(AUTOCAST)
    cut = run.with_({"software.kernels.loss_chunks": 4})
    for name in ("cast weights", "cast rows", "row gradients to FP32"):
        assert moved(cut, name) == moved(run, name)


def test_a_single_gradient_of_a_look_up_is_taken_as_it_is() -> None:
    narrow, wide = job(microbatches=1), job(microbatches=1).with_(AUTOCAST)
    table = HIDDEN * narrow.model.embedding_rows
    assert moved(narrow, "gradient cast")[0] - moved(wide, "gradient cast")[0] == table * BOTH


@pytest.mark.parametrize("zero", [2, 3])
def test_casts_are_kept_for_backward_where_parameters_are_sharded(zero: int) -> None:
    """Autograd keeps what GEMMs read, whatever becomes of what was gathered."""
    one, eight = job(zero=zero).with_(AUTOCAST), job(zero=zero, dp=8).with_(AUTOCAST)
    attention, mlp = 4 * HIDDEN * HIDDEN, 2 * HIDDEN * WIDE
    assert kept(eight) - kept(one) == 2 * (attention + mlp)  # whole ones have theirs with the weights
    modules = {"training.recompute": {"kind": "modules", "modules": ["mlp"]}}
    assert kept(eight.with_(modules)) - kept(one.with_(modules)) == 2 * attention
    again = {"training.recompute": "full"}
    assert kept(eight.with_(again)) == kept(one.with_(again))
    shape = local_shape_of(eight)
    more = (
        activation_bytes(shape, eight.software).head
        - activation_bytes(local_shape_of(one), one.software).head
    )
    assert more == 2 * HIDDEN * eight.model.embedding_rows


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_a_plan_has_the_memory_of_its_steps(recompute: str) -> None:
    """Layouts that share what their forwards cost do not share what these leave behind."""
    own = job(dp=8, microbatches=2, micro_batch=1).with_(AUTOCAST)
    axes: dict[str, list[Any]] = {
        "parallelism.zero": [0, 2, 3],
        "training.micro_batch": [1, 2],
        "training.recompute": [recompute],
    }
    rest = {name: values[:1] for name, values in layout_values(own).items() if name not in axes}
    space = space_of(own, vary={**rest, **axes})
    found = screen(space, within=float("inf"))
    assert len(space) == 6
    for i in range(len(space)):
        result = simulate(space.scenario_of(i))
        assert found.needed_bytes[i] == pytest.approx(result.memory[0].needed_bytes, rel=1e-9)
        assert 0.0 < found.bound_s[i] <= result.step_time_s * (1 + 1e-9)


def test_memory_has_the_stream_in_fp32() -> None:
    """A checkpoint is the stream; else both norms' inputs are, and each matrix keeps its cast of an input."""
    narrow, elements = job(model=LLAMA), ROWS * HIDDEN
    wide = narrow.with_(AUTOCAST)
    casts = (3 + 2 - 2) * 2
    chains = 2 * (2 * 4 - 3 * 2)  # input and normed one in FP32, in place of three of 16 bit
    assert kept(wide) - kept(narrow) == (chains + casts) * elements
    again = {"training.recompute": "full"}
    assert (kept(narrow.with_(again)), kept(wide.with_(again))) == (2 * elements, 4 * elements)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("parallelism.tp", {"tp": 2}),
        ("parallelism.pp", {"pp": 2, "schedule": "1f1b"}),
        ("parallelism.zero", {"zero": 1, "dp": 2}),
        ("training.precision", {"precision": "fp32"}),
        ("training.cpu_offload", {"cpu_offload": True}),
        ("training.recompute", {"recompute": {"kind": "modules", "modules": ["layernorm"]}}),
    ],
)
def test_what_is_not_described_is_refused(field: str, value: dict[str, Any]) -> None:
    run = job(**value).with_(AUTOCAST)
    with refused_at(field, "autocast"):
        lowered(run)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("software.gradients.master_weights", False),
        ("software.kernels.fused_wgrad_accumulation", True),
        ("software.kernels.one_hot_embedding", True),
        ("software.kernels.head_fp32", True),
        ("software.gradients.main_grad_bytes", 2),
        ("software.sharding.implementation", "deepspeed"),
    ],
)
def test_stacks_that_are_not_described_are_refused(field: str, value: Any) -> None:
    run = job(dp=2, zero=3).with_({**AUTOCAST, field: value})
    with refused_at(field, "autocast"):
        lowered(run)


def test_a_gelu_by_its_formula_is_eighteen_passes_and_twenty_eight_back() -> None:
    formula = {"software.kernels.gelu_by_operators": True}
    run, elements = job(microbatches=1).with_(formula), LAYERS * ROWS * WIDE
    assert moved(run, "activation")[0] == 18 * 2 * elements
    assert moved(run, "activation backward")[0] == 28 * 2 * elements
    wide = run.with_(AUTOCAST)  # pow and all behind it in FP32
    assert moved(wide, "activation")[0] == (6 * 2 + 16 * 4) * elements
    assert moved(wide, "activation backward")[0] == (13 * 2 + 23 * 4) * elements
    for fused in ("torch_compile", "fused_activation"):
        same = job(microbatches=1).with_({f"software.kernels.{fused}": True})
        assert moved(same.with_(formula), "activation") == moved(same, "activation")


def test_a_gelu_by_its_formula_keeps_what_its_operators_read() -> None:
    formula = {"software.kernels.gelu_by_operators": True}
    plain, elements = job(microbatches=1), ROWS * WIDE
    assert kept(plain.with_(formula)) - kept(plain) == 3 * 2 * elements
    assert kept(plain.with_(formula | AUTOCAST)) - kept(plain.with_(AUTOCAST)) == 3 * 4 * elements


EXPERTS = {"num_experts": 4, "topk": 2, "expert_ffn_hidden_size": 384, "num_shared_experts": 1}


def test_experts_keep_the_formula_of_their_rows() -> None:
    """As wide as they are, and not as a dense layer would be."""
    plain = job(microbatches=1, moe=EXPERTS, tied_embeddings=False, biases=False)
    formula = plain.with_({"software.kernels.gelu_by_operators": True})
    shape = local_shape_of(plain)
    assert shape.experts is not None
    elements = ROWS * (2 * 384 + shape.experts.shared_ffn)
    assert kept(formula) - kept(plain) == 3 * 2 * elements
    assert moved(formula, "activation")[0] - moved(plain, "activation")[0] == LAYERS * 16 * 2 * elements
    modules = {"training.recompute": {"kind": "modules", "modules": ["moe"]}}
    assert kept(formula.with_(modules)) == kept(plain.with_(modules))
    modules = {"training.recompute": {"kind": "modules", "modules": ["moe_act"]}}
    assert (
        kept(formula.with_(modules)) - kept(plain.with_(modules)) == 3 * 2 * ROWS * shape.experts.shared_ffn
    )
    modules = {"training.recompute": {"kind": "modules", "modules": ["shared_experts"]}}
    assert kept(formula.with_(modules)) - kept(plain.with_(modules)) == 3 * 2 * ROWS * 2 * 384


def test_cases_say_it_in_words() -> None:
    said = fields_said("software", "PyTorch DDP (Transformers; autocast, GELU by operators)")
    assert (said["autocast"], said["gelu_by_operators"]) == (True, True)
