"""The words of the memory bill: six scenarios and more, each reason against the formula it explains."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from small_experts import with_experts
from small_scenarios import layouts, scenario

from stepsim.sim.network.nccl.buffers import BUFFER_BYTES, NVLS_BYTES, collective_buffers, message_buffers
from stepsim.sim.network.nccl.constants import NcclProtocol
from stepsim.sim.network.nccl.paths import communicator_on
from stepsim.sim.report.memory.bill import BillLine, bill, layer_formula
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.simulate import build_cluster, simulate

H100 = {"gpu": "H100-SXM5-80GB", "interconnect": "ib-ndr400-x8"}


def lines_of(run: Scenario, stage: int = 0) -> tuple[dict[str, BillLine], float]:
    """Lines by name, and N."""
    result = simulate(run)
    one = result.memory[stage]
    return {line.name: line for line in bill(run, one)}, one.parameters


# State: 16 N, 18 N, 20 N, and what ZeRO divides ------------------------------------------------------


def test_megatrons_state_is_18_bytes_a_parameter() -> None:
    lines, n = lines_of(scenario(software="megatron-2022-sp"))
    state = sum(lines[name].bytes for name in ("weights", "gradients", "optimizer"))
    assert state == pytest.approx(18 * n)
    assert lines["gradients"].why == "accumulated in FP32 (18 N)"


def test_a_separate_gradient_copy_makes_20_bytes_a_parameter() -> None:
    software = {"preset": "megatron-2022-sp", "gradients": {"separate_grad_copy": True}}
    lines, n = lines_of(scenario(software=software))
    state = sum(lines[name].bytes for name in ("weights", "gradients", "optimizer"))
    assert state == pytest.approx(20 * n)
    assert lines["gradients"].why == "FP32 and 16-bit ones (20 N)"


def test_fsdp_holds_16_n_over_the_group_and_does_not_speak_of_18() -> None:
    """FP32 parameters are the masters: 4 N of them, 4 N of gradients, 8 N of moments."""
    lines, n = lines_of(scenario(software="torchtitan-2024", zero=3, dp=4))
    assert lines["weights"].bytes + lines["optimizer"].bytes == pytest.approx(12 * n / 4)
    assert lines["weights"].why == "the FP32 parameters are the ones that are sharded"
    assert "18 N" not in lines["gradients"].why
    said = "shards in FP32; whole gradients of what is being reduced"
    assert lines["gradients"].why == f"{said}; in the update, roots of all second moments are beside them"


@pytest.mark.parametrize("reshard", ["default", "always"])
def test_under_a_pipeline_fsdp2_keeps_whole_gradients(reshard: str) -> None:
    """4 N whole until a stage's last backward, whatever becomes of parameters; then 4 N / dp of shards."""
    software = {"preset": "torchtitan-2024", "sharding": {"reshard_after_forward": reshard}}
    run = scenario(software=software, zero=3, dp=2, pp=2, schedule="1f1b")
    result = simulate(run)
    stage = result.memory[0]
    gradients = [sizes[2] for _, sizes in stage.moving]
    assert max(gradients[:-2]) == pytest.approx(4 * stage.parameters)
    assert gradients[-1] == pytest.approx(4 * stage.parameters / 2)
    why = {line.name: line.why for line in bill(run, stage)}["gradients"]
    assert "whole ones in FP32 from a stage's first backward to its last" in why


def test_a_distributed_optimizer_under_zero_2_keeps_whole_gradients() -> None:
    software = {"preset": "megatron-2022-sp", "sharding": {"implementation": "distributed-optimizer"}}
    lines, n = lines_of(scenario(software=software, zero=2, dp=4))
    assert lines["gradients"].bytes == pytest.approx(4 * n)
    assert lines["gradients"].textbook_bytes == pytest.approx(2 * n / 4)
    assert lines["gradients"].why.startswith("whole: the distributed optimizer reduces them")


def test_pipedreams_versions_are_said_of_pipedream_alone() -> None:
    lines, _ = lines_of(scenario(pp=2, schedule="pipedream"))
    assert lines["weights"].why == "several versions are kept"
    software = {"preset": "megatron-core-2024", "kernels": {"fp8_parameters": False}}
    eight, n = lines_of(scenario(precision="fp8", software=software, **H100))
    assert eight["weights"].bytes > 2 * n
    assert eight["weights"].why == "weights of layers are kept quantised, beside the 16-bit ones"


def test_fewer_ranks_for_experts() -> None:
    lines, _ = lines_of(with_experts())
    assert lines["optimizer"].why == "experts are sharded over fewer ranks"


TORCHS_SOFTMAX = {"preset": "megatron-2022-sp", "kernels": {"fused_softmax": False}}


# Activations --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("recompute", "fields", "formula", "words"),
    [
        ("full", {}, "2 s b h", "one layer that is being recomputed"),
        ({"kind": "full", "layers": 2, "method": "uniform"}, {}, "2 s b h / 2", "2 layers that are"),
        ("selective", {"mlp": "swiglu"}, "34 s b h", "in two branches"),
        ("op_selective", {"mlp": "swiglu"}, "s b h (34 + 5 a s/h)", "a part is recomputed"),
        ({"kind": "full", "every": 2}, {}, "s b h (34 + 5 a s/h)", "a part is recomputed"),
        ("none", {"precision": "fp32"}, "s b h (34 + 5 a s/h)", "four bytes an element"),
        ("none", {"software": TORCHS_SOFTMAX}, "s b h (34 + 5 a s/h)", "softmax in FP32 keeps its output"),
        ("selective", {"tp": 2}, "s b h (10 + 24/t)", None),
        ("selective", {"tp": 2, "sequence_parallel": True}, "34 s b h / t", None),
    ],
)
def test_activations_differ_from_the_formula_by_what_the_words_say(
    recompute: Any, fields: dict[str, Any], formula: str, words: str | None
) -> None:
    """GPT with unfused attention; without words, 64 layers agree with the formula."""
    shape = {"num_layers": 64, "vocab_size": 64} if words is None else {}
    run = scenario(recompute=recompute, microbatches=1, **{**shape, **fields})
    assert layer_formula(run)[1] == formula
    line = lines_of(run)[0]["activations"]
    assert line.why == "" if words is None else words in line.why


def test_scores_are_not_mentioned_where_the_formula_has_none() -> None:
    run = scenario(recompute="selective", software="megatron-core-2024", mlp="swiglu", **H100)
    assert "scores" not in lines_of(run)[0]["activations"].why


# NCCL's buffers --------------------------------------------------------------------------------------------


def test_buffers_of_eight_h100() -> None:
    """24 channels of 512 KiB, 4.9 MB and 4 MiB; NVLS as its own log has it: 256 MiB."""
    cluster = build_cluster(scenario(tp=4, dp=2, **H100))
    comm = communicator_on(cluster, ranks=8, domains=1, version=(2, 26))
    found = collective_buffers("tp", 8, comm, trees=False)
    assert (found.channels, found.nvls) == (24, 256 * 2**20)
    assert found.ll == 24 * 512 * 1024
    assert found.ll128 == 24 * 640 * 120 * 64
    assert found.simple == 24 * 4 * 2**20
    assert collective_buffers("tp", 8, comm, trees=True).simple == 2 * found.simple
    assert BUFFER_BYTES[NcclProtocol.LL128] == pytest.approx(4.9e6, rel=0.01)
    assert NVLS_BYTES == 2**20


def test_between_hosts_sends_share_buffers() -> None:
    cluster = build_cluster(scenario(tp=8, dp=4, num_attention_heads=8, **H100))
    comm = communicator_on(cluster, ranks=4, domains=4, version=(2, 26))
    assert message_buffers("pp", 4, comm).total == 2 * 16 * 2 * 2**20
    longer = simulate(scenario(tp=8, pp=4, num_attention_heads=8, message_chunk="512 KiB", **H100)).memory
    shared = {one.name: one.shared for one in longer[0].communicators}
    assert shared["pp"] == 2 * 16 * 8 * 2**20  # net.cc, sharedNetBuffersInit: channels x 16 x the chunk
    both_ends = collective_buffers("dp", 4, comm, trees=False)
    assert both_ends.simple == 2 * both_ends.channels * 4 * 2**20


@settings(max_examples=30)
@given(layouts())
def test_communicators_sum_to_their_term(run: Scenario) -> None:
    par = run.parallelism
    for stage in simulate(run).memory:
        assert sum(one.total for one in stage.communicators) == pytest.approx(stage.terms["communication"])
        names = [one.name for one in stage.communicators]
        there = {"world": run.world_size > 1, "tp": par.tp > 1, "dp": par.dp > 1, "pp": par.pp > 1}
        there["dp"] |= run.schedule == "dualpipe"  # both copies of a stage reduce together
        ends = {"embedding"} if run.model.tied_embeddings else set()  # which ranks: test_communicators_used
        assert set(names) - ends == {name for name, is_there in there.items() if is_there}
