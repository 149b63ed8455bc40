"""Hosts with GPUs of different kinds: closed forms of replicas and stages on them, balance, and refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused_at
from slow_by_hand import LARGE, kernels_s, update_s
from small_scenarios import lowered, scenario
from typer.testing import CliRunner

from stepsim.cli.main import app
from stepsim.sim.brief.step import brief_step
from stepsim.sim.plan.space import space_of
from stepsim.sim.program.program import Exchange
from stepsim.sim.result.result import Result
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.simulate import simulate

FAST, SLOW = "H100-SXM5-80GB", "A100-SXM4-80GB"
JOB: dict[str, Any] = {**LARGE, "gpu": FAST, "gpus_per_node": 8}
WITHIN = 1e-3


def mixed(*hosts: int, other: str = SLOW, **fields: Any) -> Scenario:
    return scenario(**{**JOB, **fields}, other_gpus=[{"gpu": other, "hosts": list(hosts)}])


def stepped(run: Scenario, **options: Any) -> Result:
    return simulate(run, **options)


@pytest.mark.parametrize("hosts", [(0,), (1,)])
def test_replicas_wait_for_those_on_the_slower_kind(hosts: tuple[int, ...]) -> None:
    """Every replica has as many microbatches, so that the step is that of the slower kind alone."""
    found = stepped(mixed(*hosts, dp=16))
    slow, fast = (stepped(scenario(**{**JOB, "gpu": gpu}, dp=16)) for gpu in (SLOW, FAST))
    assert found.step_time_s == pytest.approx(slow.step_time_s, rel=WITHIN)
    assert found.step_time_s > 1.5 * fast.step_time_s
    assert found.peak_flops_per_gpu == pytest.approx((slow.peak_flops_per_gpu + fast.peak_flops_per_gpu) / 2)


def test_a_slow_last_stage_sets_the_pace() -> None:
    """1F1B on two stages, the last of which is slower. It waits for the first forward, and runs m forwards
    and backwards from then on, with a message before each and one to the last backward of the first stage.
    Then all norms meet, and the slower stage is the last to have its update.
    """
    many = 16
    run = mixed(1, gpus_per_node=1, pp=2, dp=1, schedule="1f1b", microbatches=many)
    first, _ = lowered(run).programs.classes
    (message,) = {
        part.transfer for op in first.ops if isinstance(op.work, Exchange) for part in op.work.parts
    }
    once_s = (kernels_s(run, 0, "F") + kernels_s(run, 0, "B")) / many
    pace_s = (kernels_s(run, 1, "F") + kernels_s(run, 1, "B")) / many
    updates_s = update_s(run, 0, behind_norm=False) + update_s(run, 1, behind_norm=True)
    expected = once_s + many * pace_s + (many + 1) * message.solo_s + updates_s
    assert stepped(run).step_time_s == pytest.approx(expected, rel=WITHIN)


def test_a_kind_that_is_the_same_changes_nothing() -> None:
    for shape in ({"dp": 16}, {"tp": 8, "dp": 2, "pp": 2, "schedule": "1f1b"}):
        found, plain = stepped(mixed(0, other=FAST, **shape)), stepped(scenario(**JOB, **shape))
        assert found.step_time_s == pytest.approx(plain.step_time_s, rel=1e-12)
        assert found.peak_flops_per_gpu == plain.peak_flops_per_gpu


@pytest.mark.slow
@settings(max_examples=6, deadline=None)
@given(
    shape=st.sampled_from(
        [
            {"tp": 4, "dp": 2, "pp": 4, "schedule": "1f1b"},
            {"tp": 2, "dp": 16, "zero": 1},
            {"tp": 8, "dp": 2, "pp": 2, "vpp": 2, "schedule": "interleaved"},
        ]
    ),
    hosts=st.sets(st.integers(0, 3), min_size=1, max_size=3),
)
def test_folded_is_unfolded_and_between_both_kinds(shape: dict[str, Any], hosts: set[int]) -> None:
    """Kernels overlap messages here, whose SMs are a larger share of the smaller GPU; messages between kinds
    are those of whichever is slower, by its latency or by its rate: a hundredth.
    """
    fields = {**shape, "software": "megatron-core-2025", "hidden_size": 1024, "ffn_hidden_size": 4096}
    run = mixed(*sorted(hosts), **fields)
    found = stepped(run).step_time_s
    assert found == pytest.approx(stepped(run, fold=False).step_time_s, rel=1e-9)
    fast, slow = (stepped(scenario(**{**JOB, **fields, "gpu": gpu})).step_time_s for gpu in (FAST, SLOW))
    assert fast * (1 - 1e-9) <= found <= slow * 1.01


def test_a_balanced_split_is_told_and_is_the_best() -> None:
    fields: dict[str, Any] = {
        "tp": 8,
        "pp": 2,
        "dp": 1,
        "schedule": "1f1b",
        "num_layers": 16,
        "microbatches": 16,
    }
    found = stepped(mixed(1, **fields))
    assert found.gpu_kinds is not None
    assert found.gpu_kinds.counts == ((FAST, 8), (SLOW, 8))
    split = found.gpu_kinds.balanced
    assert split is not None
    assert split.step_time_s < 0.8 * found.step_time_s
    steps = {n: stepped(mixed(1, **fields, stage_split=[n, 16 - n])).step_time_s for n in range(8, 15)}
    assert min(steps, key=steps.__getitem__) == split.layers[0]
    assert split.step_time_s == pytest.approx(steps[split.layers[0]], rel=1e-9)
    balanced = stepped(mixed(1, **fields, stage_split=list(split.layers))).gpu_kinds
    assert balanced is not None
    assert balanced.balanced is None


def test_replicas_have_no_split() -> None:
    found = stepped(mixed(1, dp=16)).gpu_kinds
    assert found is not None
    assert found.balanced is None


def test_memory_is_that_of_the_smaller_kind() -> None:
    run = mixed(1, other="A100-SXM4-40GB", tp=8, pp=2, dp=1, schedule="1f1b")
    first, last = stepped(run).memory
    assert last.capacity_bytes < 0.6 * first.capacity_bytes


def test_the_document_and_the_table(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(mixed(1, tp=8, pp=2, dp=1, schedule="1f1b").to_document()))
    ran = CliRunner().invoke(app, ["run", str(path), "--json"])
    assert ran.exit_code == 0, ran.output
    found = json.loads(ran.stdout)
    assert [kind["gpus"] for kind in found["gpu_kinds"]["counts"]] == [8, 8]
    assert found["energy"] is None
    assert CliRunner().invoke(app, ["run", str(path)]).exit_code == 0
    assert (
        CliRunner().invoke(app, ["run", str(path), "--save-program", str(tmp_path / "p.json")]).exit_code == 2
    )


@pytest.mark.parametrize(
    ("others", "field"),
    [
        ([{"gpu": "A100-SXM4-80GB", "hosts": [2]}], "cluster.other_gpus[0].hosts"),
        ([{"gpu": "A100-SXM4-80GB", "hosts": [1, 1]}], "cluster.other_gpus[0]"),
        ([{"gpu": "A100-SXM4-80GB", "hosts": []}], "cluster.other_gpus[0].hosts"),
        ([{"gpu": "A100", "hosts": [1]}], "cluster.other_gpus[0].gpu"),
        ([{"gpu": "GB200-NVL72", "hosts": [1]}], "cluster.other_gpus[0].gpu"),
        (
            [{"gpu": "A100-SXM4-80GB", "hosts": [1]}, {"gpu": "H200-SXM-141GB", "hosts": [1]}],
            "cluster.other_gpus[1].hosts",
        ),
    ],
)
def test_kinds_that_do_not_fit(others: list[dict[str, Any]], field: str) -> None:
    with refused_at(field):
        scenario(**JOB, dp=16, other_gpus=others)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"price_list": "lambda"}, "cluster.price_list"),
        ({"cpu_offload": True, "zero": 2}, "training.cpu_offload"),
        ({"what_if": {"nic": 2.0}}, "cluster.what_if"),
    ],
)
def test_fields_that_speak_of_one_kind(fields: dict[str, Any], field: str) -> None:
    with refused_at(field):
        mixed(1, dp=16, **fields)


def test_programs_that_would_differ() -> None:
    with refused_at("training.precision"):
        stepped(mixed(1, dp=16, precision="fp8", software="megatron-core-2025"))
    with refused_at("cluster.other_gpus"):
        stepped(mixed(1, tp=8, pp=2, dp=1, schedule="zb", software="megatron-core-2025"))


def test_what_knows_one_kind_refuses() -> None:
    for ask in (brief_step, space_of):
        with refused_at("cluster.other_gpus"):
            ask(mixed(1, dp=16))


def test_memory_is_told_of_the_rank_that_is_fullest_by_its_own_gpus() -> None:
    """The last stage holds less than the first, of GPUs with half the memory: it is the fullest."""
    found = stepped(mixed(1, other="A100-SXM4-40GB", gpus_per_node=1, pp=2, dp=1, schedule="1f1b"))
    first, last = found.memory
    assert last.peak_bytes < first.peak_bytes
    assert last.fullness > first.fullness
    assert found.fullest is last
    assert found.peak_memory_bytes == last.peak_bytes


def test_every_command_tells_the_same_peak_of_unequal_gpus(tmp_path: Path) -> None:
    """The first stage holds more, of GPUs with more memory, so that the largest peak is not the fullest."""
    job = {
        "extends": "llama3-8b-h100",
        "cluster": {
            "gpus": 16,
            "interconnect": "ib-ndr400-x8",
            "other_gpus": [{"gpu": "H200-SXM-141GB", "hosts": [0]}],
        },
        "parallelism": {"tp": 4, "pp": 2, "dp": 2},
        "schedule": "1f1b",
    }
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    (tmp_path / "own.yaml").write_text("scenario: job.yaml\nmeasured: {step_time_s: 8.0}\n")

    def told(*words: str) -> Any:
        return json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)

    memory = told("memory", str(tmp_path / "job.yaml"))
    assert memory["peak_memory_bytes"] < max(one["peak_bytes"] for one in memory["stages"])
    assert told("run", str(tmp_path / "job.yaml"))["peak_memory_bytes"] == memory["peak_memory_bytes"]
    judged = told("validate", str(tmp_path / "own.yaml"))["runs"][0]
    assert judged["memory_bytes"] == memory["peak_memory_bytes"]
