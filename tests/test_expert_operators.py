"""Experts of Transformers: what torch's own operators move, and what a loop over experts launches."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from small_experts import with_experts
from small_scenarios import lowered
from validation_cases import MOE, case_document

from stepsim.calibration.cases.case import build
from stepsim.calibration.cases.preset import preset_of, software_document
from stepsim.calibration.cases.recipes import recipe_fields
from stepsim.hardware.calibrated.overlay import load_profile
from stepsim.hardware.gpus import get_gpu
from stepsim.kernels.kernel import MemoryBound
from stepsim.kernels.memory_bound import PART_S, memory_bound_seconds
from stepsim.sim.lowering.layers.experts import experts_of
from stepsim.sim.program.program import Collective, Compute, RepeatedBlocks
from stepsim.sim.scenario.errors import ScenarioError
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.scenario.refusal import NotSupported
from stepsim.sim.simulate import simulate

TOKENS, TOPK, HIDDEN, WIDTH, HELD, LAYERS = 512, 2, 256, 512, 16, 4
ROWS = TOKENS * TOPK


def run_of(operators: str, **fields: Any) -> Scenario:
    fixed = {"ep": 1, "microbatches": 1, "moe_dispatcher": "alltoall", "expert_operators": operators}
    return with_experts(**fixed | {"grouped_gemm": "stacked"} | fields)


def layer_work(run: Scenario) -> list[tuple[str, Compute, float]]:
    """Kernels of layers of a step, with what each costs the host."""
    found = []
    for op in lowered(run).programs.classes[0].ops:
        if isinstance(op.work, RepeatedBlocks):
            found += [
                (one.name, one.work, one.host_s)
                for block in op.work.row
                for one in block.ops
                if isinstance(one.work, Compute)
            ]
    return found


def bytes_of(run: Scenario, name: str) -> float:
    """HBM bytes of a kernel of that name in a layer, which all layers have alike."""
    (size,) = {work.bytes for each, work, _ in layer_work(run) if each == name}
    return size


def test_rows_are_gathered_weighted_put_back_and_added_up() -> None:
    run = run_of("torch")
    row = 2.0 * HIDDEN
    assert bytes_of(run, "take rows") == (TOKENS + ROWS) * row
    assert bytes_of(run, "take rows backward") == (TOKENS + 3 * ROWS) * row
    assert bytes_of(run, "rows by weight") == bytes_of(run, "rows by token") == 2 * ROWS * row
    assert bytes_of(run, "rows by token backward") == 4 * ROWS * row
    names = {name for name, _, _ in layer_work(run)}
    assert not names & {"permute", "unpermute", "sort by source", "activation"}


def test_a_loop_adds_gradients_of_all_tokens_up_once_an_expert() -> None:
    """Zeros, and a sum of three passes, as large as all tokens, for each expert but the first's sum."""
    size = bytes_of(run_of("loop"), "take rows backward")
    assert size == ((4 * HELD - 3) * TOKENS + 3 * ROWS) * 2.0 * HIDDEN


def test_a_loop_multiplies_as_much_in_more_launches() -> None:
    def products(run: Scenario) -> tuple[float, float]:
        made = [(work, host_s) for name, work, host_s in layer_work(run) if name.startswith("expert fc")]
        return sum(work.flops for work, _ in made), sum(host_s for _, host_s in made)

    together, turns = products(run_of("torch")), products(run_of("loop"))
    assert turns[0] == pytest.approx(together[0])
    assert turns[1] > HELD / 2 * together[1]
    branches = products(run_of("loop", split_gate=True))
    assert branches[0] == pytest.approx(together[0])
    assert branches[1] > turns[1]


def test_parts_of_one_weight_have_gradients_as_large_as_all() -> None:
    """Zeros, and a sum of three passes, of the weights of all experts for each; of weights apart none."""
    apart, one = run_of("loop", grouped_gemm="streams"), run_of("loop")
    assert "gradients of all experts" not in {name for name, _, _ in layer_work(apart)}
    sizes = {work.bytes for name, work, _ in layer_work(one) if name == "gradients of all experts"}
    matrices = (2.0 * HIDDEN * WIDTH, 2.0 * 2 * HIDDEN * WIDTH)  # back, and both branches
    assert sizes == {((4 * HELD - 3) * HELD + 2 * HELD) * size for size in matrices}


def test_weights_of_gpt_oss_are_one_parameter_however_its_products_run() -> None:
    own = run_of("loop", grouped_gemm="streams", clamped_gate=True, biases=True)
    assert "gradients of all experts" in {name for name, _, _ in layer_work(own)}


def test_branches_that_are_products_of_their_own_have_gradients_apart() -> None:
    """Halves of one GEMM's rows are joined; of two GEMMs each gives the rows a gradient: r 2 w 1."""
    halves, apart = (
        {(name, work.bytes) for name, work, _ in layer_work(run_of("loop", split_gate=flag))}
        for flag in (False, True)
    )
    joined = ("join gradients of branches", 4 * 2.0 * ROWS * WIDTH)
    added = ("input gradient add", 3 * 2.0 * ROWS * HIDDEN)
    assert {joined, added} & halves == {joined}
    assert {joined, added} & apart == {added}


def test_a_loop_passes_over_experts_without_rows() -> None:
    few = run_of("loop", routing={"kind": "repeated", "tokens": 1}, host_s_per_kernel=0.0)
    found = experts_of(few)
    assert found is not None
    assert found.turns == TOPK
    products = [work for name, work, _ in layer_work(few) if name == "expert fc1"]
    even = [work for name, work, _ in layer_work(run_of("loop")) if name == "expert fc1"]
    assert products[0].flops == even[0].flops
    assert bytes_of(few, "take rows backward") == ((4 * TOPK - 3) * TOKENS + 3 * ROWS) * 2.0 * HIDDEN


def test_hosts_follow_a_loop_turn_by_turn() -> None:
    assert simulate(run_of("loop")).step_time_s > 2 * simulate(run_of("torch")).step_time_s


@pytest.mark.parametrize("operators", ["torch", "loop"])
def test_a_clamped_gate_is_operators_of_its_own(operators: str) -> None:
    plain, clamped = run_of(operators), run_of(operators, clamped_gate=True, biases=True)
    elements = 2.0 * ROWS * WIDTH
    assert bytes_of(plain, "gate") == 5 * elements
    assert bytes_of(clamped, "gate") == 12 * elements
    assert bytes_of(clamped, "clamps") == 6 * elements
    assert bytes_of(clamped, "sum of columns") == 6 * elements


def test_biases_of_the_busiest_expert_are_added_up_row_by_row() -> None:
    even = run_of("torch", biases=True)
    uneven = run_of("torch", biases=True, routing={"kind": "zipf", "exponent": 1.0})
    total = sum(1 / k for k in range(1, HELD + 1))
    found = experts_of(uneven)
    assert found is not None
    assert found.busiest == pytest.approx(HELD / total)

    def slowest_s(run: Scenario) -> float:
        return max(work.seconds for name, work, _ in layer_work(run) if name == "expert biases backward")

    assert slowest_s(even) < slowest_s(uneven)
    # 0.98 us a row, which was measured of index_put_
    assert slowest_s(uneven) > 0.97e-6 * found.busiest * ROWS / HELD


def test_reads_in_turn_take_as_long_as_there_are() -> None:
    gpu = get_gpu("H100-SXM5-80GB")
    profile = load_profile(gpu.name)
    short, long = (
        memory_bound_seconds(MemoryBound(hbm_bytes=1e6, in_turn=reads), gpu, profile) for reads in (1e5, 2e5)
    )
    assert long - short == pytest.approx(1e5 * PART_S)


def test_operators_are_refused_where_a_compiler_joins_them() -> None:
    with pytest.raises(ScenarioError) as refused:
        run_of("torch").with_({"software.kernels.torch_compile": True})
    (problem,) = refused.value.problems
    assert problem.path == "software.kernels.expert_operators"
    assert "library" in problem.message


def test_a_formula_of_gelu_is_of_a_librarys_rows() -> None:
    formula = {"software.kernels.gelu_by_operators": True}
    assert run_of("torch").with_(formula).software.kernels.gelu_by_operators  # a gate of SiLU is none
    with pytest.raises(ScenarioError) as raised:
        run_of("torch").with_({"model.mlp": "gelu"} | formula)
    assert {problem.path for problem in raised.value.problems} == {"software.kernels.expert_operators"}


def test_layouts_that_spread_experts_are_refused() -> None:
    """By themselves, so that a plan has the others."""
    with pytest.raises(NotSupported) as refused:
        simulate(run_of("loop", ep=2))
    assert refused.value.field == "software.kernels.expert_operators"
    assert "library" in str(refused.value)


@pytest.mark.parametrize(
    ("text", "year", "ep", "operators"),
    [
        ("TRL (Transformers, FSDP2)", 2025, 1, "loop"),
        ("TRL (Transformers, FSDP2)", 2026, 1, "torch"),
        ("DeepSpeed ZeRO-3 (ms-swift, transformers)", 2025, 1, "loop"),
        ("TRL (Transformers, FSDP2; experts in a loop)", 2026, 1, "loop"),
        ("TRL (Transformers, FSDP2; own expert kernels)", 2026, 1, None),
        ("TRL (Transformers, FSDP2)", 2026, 2, None),
        ("OLMo-core (FSDP2)", 2026, 1, None),
        ("Megatron core (ms-swift)", 2025, 1, None),
    ],
)
def test_a_trainer_of_transformers_runs_its_experts(
    text: str, year: int, ep: int, operators: str | None
) -> None:
    said = {"software.framework": text, "software.year": year}
    case = build(case_document({"model.moe": MOE, "layout.ep": ep, **said}))
    found = software_document(case.software, "", recipe_fields(preset_of(case.software), case))
    ran = found.get("kernels", {}).get("expert_operators")
    assert (None if ran == "library" else ran) == operators


def test_dense_models_have_no_operators_of_experts() -> None:
    counted = Counter(name for name, _, _ in layer_work(run_of("torch", num_dense_layers=LAYERS - 1)))
    assert counted["take rows"] * 2 <= counted["activation"]


def test_deepspeed_fetches_each_matrix_of_a_loop_by_itself() -> None:
    """A layer's experts are so many modules with two branches and a matrix back each."""

    def fetched(operators: str) -> Counter[float]:
        own = {"implementation": "deepspeed", "prefetch_elements": 0.0, "split_gate": True}
        run = run_of(operators, zero=3, **own)
        sizes: Counter[float] = Counter()
        for op in lowered(run).programs.classes[0].ops:
            row = (
                [one for block in op.work.row for one in block.ops]
                if isinstance(op.work, RepeatedBlocks)
                else [op]
            )
            sizes.update(
                one.work.transfer.bytes
                for one in row
                if isinstance(one.work, Collective) and one.name == "parameter all_gather"
            )
        return sizes

    matrix = 2.0 * HIDDEN * WIDTH
    more = fetched("loop")[matrix] - fetched("torch")[matrix]
    assert more == 2 * LAYERS * 3 * HELD  # for forward and for backward
