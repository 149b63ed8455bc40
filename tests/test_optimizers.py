"""Optimizers by name: what each keeps and moves, who refuses it, and an entry of one's own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from small_experts import with_experts
from small_scenarios import changed, lowered, ops_of, scenario

from stepsim import simulate
from stepsim.hardware.catalogue import UnknownName
from stepsim.sim.lowering.optimizers import (
    by_group,
    matrices_of_layers,
    packed,
    touched,
    updated_parameters,
)
from stepsim.sim.lowering.parameters import Parameter, count_of
from stepsim.sim.lowering.plan import StepPlan
from stepsim.sim.lowering.sizes import checkpoint_bytes, parameters
from stepsim.sim.program.program import Collective, Compute, Op
from stepsim.sim.scenario.errors import ScenarioError
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.scenario.optimizers import OPTIMIZERS, get_optimizer, optimizer_names
from stepsim.sim.scenario.refusal import NotSupported

NAMES = optimizer_names()
DDP: dict[str, Any] = {"dp": 4, "zero": 0}
ZERO_1: dict[str, Any] = {"dp": 4, "zero": 1, "pp": 2, "schedule": "1f1b"}
FSDP: dict[str, Any] = {"dp": 4, "zero": 3, "software": "torchtitan-2025"}
LAYOUTS = {"ddp": DDP, "zero-1": ZERO_1, "fsdp2": FSDP}


def runs_of(name: str) -> Iterator[Scenario]:
    """A scenario with that optimizer in each layout that takes it."""
    for fields in LAYOUTS.values():
        if not (get_optimizer(name).factors and fields["zero"] == 1):
            yield scenario(optimizer=name, **fields)


def matrices(plan: StepPlan, r: int = 0) -> tuple[Parameter, ...]:
    return matrices_of_layers(plan.parameters[s] for s in plan.held_stages(r))


# What stays ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_memory_is_the_closed_form(name: str) -> None:
    """Masters and whole states by the rank's share; sums of rows and columns; Muon's matrices apart."""
    row = get_optimizer(name)
    for run in runs_of(name):
        plan, result = lowered(run).plan, simulate(run)
        ranks = plan.groups["fsdp"].ranks if run.parallelism.zero else 1
        master = 0 if run.parallelism.zero == 3 else 4  # FSDP2 shards the FP32 parameters themselves
        for stage in result.memory:
            held, own = plan.held_parameters(stage.pp), matrices(plan, stage.pp)
            per_parameter = master + row.state_bytes(4)
            expected = held / ranks * per_parameter
            if row.orthogonalizes:
                fullest = count_of(own) / ranks
                if run.parallelism.zero == 1:
                    fullest = fullest_by_hand([each.elements for each in own], ranks)
                others = master + get_optimizer(row.others).state_bytes(4)
                expected = fullest * per_parameter + (held - count_of(own)) / ranks * others
            if row.factors:
                expected += 4 * sums_by_hand(plan, stage.pp, ranks)
            assert stage.terms["optimizer"] == pytest.approx(expected, rel=1e-12)


def fullest_by_hand(sizes: list[int], ranks: int) -> int:
    loads = [0] * ranks
    for size in sorted(sizes, reverse=True):
        loads[loads.index(min(loads))] += size
    return max(loads)


def sums_by_hand(plan: StepPlan, r: int, ranks: int) -> float:
    found = 0.0
    for s in plan.held_stages(r):
        for each, count in plan.parameters[s].each():
            rows, columns = (*each.shape, 0)[:2]
            found += count * each.count * (rows / ranks + columns)
    return found


@pytest.mark.parametrize("layout", LAYOUTS)
def test_sgd_keeps_no_more_than_adam(layout: str) -> None:
    def kept(optimizer: Any) -> float:
        run = scenario(optimizer=optimizer, **LAYOUTS[layout])
        return max(stage.terms["optimizer"] for stage in simulate(run).memory)

    without = kept({"name": "sgd", "momentum": False})
    assert without < kept("sgd") == kept("lion") < kept("adam") == kept("adamw")


def test_adamw_is_what_a_scenario_without_an_optimizer_has() -> None:
    said, left_out = scenario(optimizer="adamw", **ZERO_1), scenario(**ZERO_1)
    assert said == left_out
    assert "optimizer" not in said.to_document()["training"]
    assert list(simulate(said).iter_spans()) == list(simulate(left_out).iter_spans())


@pytest.mark.parametrize("name", NAMES)
def test_an_optimizer_survives_its_document(name: str) -> None:
    from stepsim.sim.scenario.load import scenario_from_document

    run = scenario(optimizer=name, **DDP)
    assert scenario_from_document(run.to_document(), run.name) == run


@pytest.mark.parametrize("name", NAMES)
def test_checkpoints_hold_weights_masters_and_state(name: str) -> None:
    run = scenario(optimizer=name, norm="rmsnorm", **DDP)
    total, row = parameters(run.model).total, get_optimizer(name)
    least, most = (6 + row.state_bytes(4)) * total, 14 * total
    assert least <= checkpoint_bytes(run) <= most
    if not (row.orthogonalizes or row.factors):
        assert checkpoint_bytes(run) == least


# What runs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_the_update_moves_weights_gradients_and_states(name: str) -> None:
    """Gradient and weight read, weight written; each whole state read and written; Muon's copy in BF16."""
    row = get_optimizer(name)
    for run in runs_of(name):
        updated = updated_parameters(lowered(run).plan, 0)
        moved = sum(
            op.work.bytes for op in ops_of(run) if op.name in kernels(name) and isinstance(op.work, Compute)
        )
        each = 12 + 2 * row.state_bytes(4)
        if row.orthogonalizes:
            continue  # two rules at once: the law below
        if row.launches:
            assert moved == pytest.approx(updated * each)
        else:
            assert moved > updated * each


def kernels(name: str) -> set[str]:
    row = get_optimizer(name)
    return {row.kernel} | ({get_optimizer(row.others).kernel} if row.others else set())


@pytest.mark.parametrize("steps", [None, 3])
def test_newton_schulz_costs_its_closed_form(steps: int | None) -> None:
    """Of each matrix of the layers and nothing else: 4 s^2 l + 2 s^3 FLOPs an iteration (by default 5)."""
    spec = {"name": "muon", **({"ns_steps": steps} if steps else {})}
    run = scenario(optimizer=spec, num_query_groups=2, mlp="swiglu", **DDP)
    heads, queries, ffn = 256, 64 * 2, 1024
    split = run.software.kernels.split_gate
    branches = [(256, ffn)] * 2 if split else [(256, 2 * ffn)]
    shapes = [(256, heads), (queries, 256), (queries, 256), (256, heads), *branches, (256, ffn)]
    flops = sum(4.0 * s * s * long + 2.0 * s**3 for s, long in shapes)
    assert orthogonalizing_flops(ops_of(run)) == 8 * (steps or 5) * flops


def orthogonalizing_flops(ops: tuple[Op, ...]) -> float:
    return sum(op.work.flops for op in ops if op.name == "Newton-Schulz" and isinstance(op.work, Compute))


def test_whole_matrices_are_shared_out_once() -> None:
    plan = lowered(scenario(optimizer="muon", **ZERO_1)).plan
    held = matrices(plan)
    own = packed(held, 4)
    assert sum(map(Counter, own), start=Counter()) == Counter(held)
    largest, even = max(map(count_of, own)), count_of(held) / 4
    assert even <= largest <= even + max(each.elements for each in held)


@pytest.mark.parametrize("ranks", [2, 3, 64])
def test_even_shards_touch_every_matrix(ranks: int) -> None:
    held = matrices(lowered(scenario(optimizer="muon", **ZERO_1)).plan)
    own = touched(held, ranks)
    assert len(own) == ranks
    assert set().union(*own) == set(held)
    pieces = sum(len(one) for one in own)
    assert len(held) <= pieces <= len(held) + ranks - 1


def test_experts_are_shared_out_among_the_ranks_that_hold_them() -> None:
    run = changed(with_experts(ep=8), training={"optimizer": "muon"})
    plan = lowered(run).plan
    groups = by_group(matrices(plan), (plan.groups["fsdp"].ranks, plan.groups["efsdp"].ranks))
    assert [ranks for _, ranks in groups] == [16, 2]
    assert simulate(run).step_time_s > simulate(with_experts(ep=8)).step_time_s


# What is sent --------------------------------------------------------------------------------------


def momentum_sent(run: Scenario) -> dict[str, float]:
    """Payload bytes of the momentum's collectives by name."""
    found: Counter[str] = Counter()
    for op in ops_of(run):
        if op.name.startswith("momentum") and isinstance(op.work, Collective):
            found[op.name] += op.work.transfer.bytes
    return dict(found)


def test_the_momentum_travels_where_a_matrix_is_not_whole() -> None:
    """Not where ranks have whole matrices; gathered in BF16 (Moonlight); to one rank and back under FSDP2."""
    assert momentum_sent(scenario(optimizer="muon", **DDP)) == {}
    assert momentum_sent(scenario(optimizer="muon", **ZERO_1)) == {}
    gathered = scenario(optimizer={"name": "muon", "sharding": "gathered"}, **ZERO_1)
    all_of_it = count_of(matrices(lowered(gathered).plan))
    assert momentum_sent(gathered) == {"momentum all_gather": 2.0 * all_of_it}
    sharded = scenario(optimizer="muon", **FSDP)
    all_of_it = count_of(matrices(lowered(sharded).plan))
    assert momentum_sent(sharded) == {"momentum all_to_all": pytest.approx(2 * 2.0 * all_of_it / 4)}


@pytest.mark.parametrize("mode", ["blockwise", "duplicated", "distributed"])
def test_tensor_parallelism_of_newton_schulz(mode: str) -> None:
    """Each part by itself sends nothing; whole matrices are gathered in FP32; else A is summed in BF16."""
    run = scenario(optimizer={"name": "muon", "tp_mode": mode}, tp=2, **DDP)
    held = matrices(lowered(run).plan)
    cut = [each for each in held if each.sharded_over]
    whole_side = [each.shape[1 - each.cut] for each in cut]
    expected = {
        "blockwise": {},
        "duplicated": {"momentum all_gather": 4.0 * 2 * count_of(cut)},
        "distributed": {"momentum all_reduce": 5 * sum(2.0 * side**2 for side in whole_side)},
    }
    assert momentum_sent(run) == expected[mode]
    flops = 0.0
    for each in held:
        (rows, columns), ranks = each.shape, 2 if each.sharded_over else 1
        whole, part = (columns, rows) if each.cut == 0 else (rows, columns)
        s, long = sorted((rows, columns))
        if mode == "duplicated":
            s, long = sorted((whole, part * ranks))
        if mode == "distributed" and ranks > 1:
            s, long = whole, part
        flops += 5 * (4.0 * s * s * long + 2.0 * s**3)
    assert orthogonalizing_flops(ops_of(run)) == flops


def test_rows_that_are_sharded_sum_their_columns() -> None:
    run = scenario(optimizer="adafactor", **FSDP)
    sums = [op.work for op in ops_of(run) if op.name == "column sums all_reduce"]
    plan = lowered(run).plan
    columns = sum(
        count * each.count * each.shape[1] for each, count in plan.parameters[0].each() if each.is_matrix
    )
    assert [work.transfer.bytes for work in sums if isinstance(work, Collective)] == [
        pytest.approx(4.0 * columns)
    ]
    assert not [op for op in ops_of(scenario(optimizer="adafactor", **DDP)) if "sums" in op.name]


# What is refused -----------------------------------------------------------------------------------

REFUSED = {
    "fp16": ({"optimizer": "muon", "precision": "fp16"}, "training.optimizer"),
    "muon on the host": ({"optimizer": "muon", "cpu_offload": True}, "training.optimizer"),
    "lion on disks": ({"optimizer": "lion", "nvme_offload": True}, "training.optimizer"),
    "fsdp1": (
        {"optimizer": "muon", "dp": 2, "zero": 3, "software": "llm-foundry-2023"},
        "training.optimizer",
    ),
    "deepspeed": (
        {"optimizer": "muon", "dp": 2, "zero": 1, "software": "deepspeed-zero3-2021"},
        "training.optimizer",
    ),
    "pipedream": ({"optimizer": "muon", "pp": 2, "schedule": "pipedream"}, "training.optimizer"),
    "sharding without shards": (
        {"optimizer": {"name": "muon", "sharding": "gathered"}},
        "training.optimizer.sharding",
    ),
    "some of the ranks": (
        {"optimizer": "muon", "dp": 4, "zero": 1, "fsdp_shard_size": 2},
        "parallelism.fsdp_shard_size",
    ),
    "factors of flat shards": ({"optimizer": "adafactor", "dp": 2, "zero": 1}, "training.optimizer"),
    "factors under tp": ({"optimizer": "adafactor", "tp": 2}, "training.optimizer"),
    "tp of shards": ({"optimizer": "muon", **FSDP, "tp": 2}, "training.optimizer"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_no_framework_runs_is_refused_by_its_field(case: str) -> None:
    fields, field = REFUSED[case]
    with pytest.raises(NotSupported) as refusal:
        simulate(scenario(**cast(Any, fields)))
    assert refusal.value.field == field


@pytest.mark.parametrize(
    "wrong",
    [
        "adamm",
        {"name": "adamw", "momentum": True},
        {"name": "sgd", "tp_mode": "blockwise"},
        {"name": "muon", "ns_steps": 0},
        {"name": "muon", "tp_mode": "somehow"},
    ],
)
def test_what_an_optimizer_has_not_cannot_be_asked(wrong: Any) -> None:
    with pytest.raises(ScenarioError) as failure:
        scenario(optimizer=wrong)
    assert all(problem.path.startswith("training.optimizer") for problem in failure.value.problems)


def test_an_unknown_name_is_told_the_known_ones() -> None:
    with pytest.raises(UnknownName) as failure:
        get_optimizer("moun")
    assert (failure.value.nearest, failure.value.known) == ("muon", tuple(NAMES))


def test_megatrons_names() -> None:
    assert scenario(optimizer="dist_muon").training.optimizer.name == "muon"


# The registry --------------------------------------------------------------------------------------


@pytest.fixture
def own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shipped entries, and one that no one has heard of, from a file elsewhere."""
    path = tmp_path / "optimizers.yaml"
    entry = {
        "title": "Three moments",
        "source": "nowhere",
        "kernel": "Triple",
        "states": [{"name": f"moment {i}"} for i in range(3)],
        "flops": 20,
        "launches": 1,
        "eager_passes": 2,
        "eager_launches": 9,
    }
    import yaml

    path.write_text(yaml.safe_dump({"triple": entry}))
    monkeypatch.setattr(OPTIMIZERS, "files", OPTIMIZERS.files)
    OPTIMIZERS.add(path)


@pytest.mark.usefixtures("own_file")
def test_an_entry_is_all_that_an_optimizer_takes() -> None:
    assert "triple" in optimizer_names()
    run = scenario(optimizer="triple", **DDP)
    result, held = simulate(run), lowered(run).plan.held_parameters(0)
    assert result.memory[0].terms["optimizer"] == held * (4 + 3 * 4)
    moved = [op.work.bytes for op in ops_of(run) if op.name == "Triple" and isinstance(op.work, Compute)]
    assert moved == [held * (12 + 2 * 12)]


# torch ---------------------------------------------------------------------------------------------


@pytest.mark.torch
@pytest.mark.parametrize("name", NAMES)
def test_states_are_those_of_torch(name: str) -> None:
    """Elements of the state that torch's own optimizer keeps for a matrix and a vector; torch has no Lion."""
    torch = pytest.importorskip("torch")
    made = {
        "adamw": lambda p: torch.optim.AdamW(p),
        "adam": lambda p: torch.optim.Adam(p),
        "sgd": lambda p: torch.optim.SGD(p, momentum=0.9),
        "adafactor": lambda p: torch.optim.Adafactor(p),
        "muon": lambda p: torch.optim.Muon(p[:1]),
    }
    if name not in made:
        pytest.skip(f"torch has no {name}")
    weights = [torch.nn.Parameter(torch.ones(48, 32)), torch.nn.Parameter(torch.ones(48))]
    for weight in weights:
        weight.grad = torch.ones_like(weight)
    optimizer = made[name](weights)
    optimizer.step()
    row, matrix = get_optimizer(name), optimizer.state[weights[0]]
    kept = sum(4 * value.numel() for key, value in matrix.items() if key != "step" and value is not None)
    assert kept == 48 * 32 * row.state_bytes(4) + (4 * (48 + 32) if row.factors else 0)
    if name == "adafactor":
        vector = optimizer.state[weights[1]]
        assert sum(value.numel() for key, value in vector.items() if key != "step") == 48
