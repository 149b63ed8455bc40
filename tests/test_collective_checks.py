"""Checked collectives: what a check costs the host, how a job's own measurement shows it, what follows."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_scenarios import lowered, scenario

from stepsim.hardware.interconnect import NCCL_MESSAGE_CHUNK_BYTES, get_interconnect
from stepsim.sim.lowering.layers.stages import build_stages
from stepsim.sim.lowering.updates.gradients import COPY_HOST_S
from stepsim.sim.network.checks import CALLS, CHECK_S_PER_RANK, check_s, mean_call_s
from stepsim.sim.network.collectives import (
    GroupPlacement,
    collective_transfer,
    message_transfer,
)
from stepsim.sim.program.program import Collective, Compute, RepeatedBlocks
from stepsim.sim.scenario.blocks import ClusterSpec
from stepsim.sim.scenario.machine import cluster_of
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.scenario.software import get_software, software_names
from stepsim.sim.scenario.software.rules import rules_of
from stepsim.sim.simulate import simulate

CHECKED = {"preset": "nanotron-2025"}
IN_TURN = "collectives_in_turn"
UNCHECKED = {"preset": "nanotron-2025", "host": {"collective_checks": False}}


def p5(gpus: int = 64) -> ClusterSpec:
    return ClusterSpec(gpu="H100-SXM5-80GB", gpus=gpus, gpus_per_node=8, interconnect="efa-3200")


# What a check costs --------------------------------------------------------------------------------------


@given(st.integers(2, 512), st.integers(1, 64))
def test_a_check_costs_so_much_for_each_rank_and_more_between_hosts(ranks: int, domains: int) -> None:
    cost = check_s(GroupPlacement(ranks=ranks * domains, domains=domains))
    assert cost == ranks * domains * CHECK_S_PER_RANK[domains > 1]
    assert check_s(GroupPlacement(ranks=1, domains=1)) == 0.0


@given(st.floats(1e-6, 1.0), st.floats(1e-6, 1.0))
def test_calls_back_to_back_hide_all_but_the_first_check(solo: float, check: float) -> None:
    mean = mean_call_s(solo, check)
    assert max(solo, check) <= mean * (1 + 1e-12)
    assert mean <= (solo + check) * (1 + 1e-12)
    assert mean_call_s(solo, 0.0) == solo
    assert mean * CALLS == pytest.approx(solo + check + (CALLS - 1) * max(solo, check))


def calls(run: Scenario) -> Counter[tuple[str, float]]:
    """Collectives of the first rank's program, by their group and what they cost the host."""
    found: Counter[tuple[str, float]] = Counter()
    for op in lowered(run).programs.classes[0].ops:
        inside = (
            [each for block in op.work.row for each in block.ops]
            if isinstance(op.work, RepeatedBlocks)
            else [op]
        )
        for each in inside:
            if isinstance(each.work, Collective):
                found[each.work.communicator, round(each.host_s, 9)] += 1
    return found


@pytest.mark.parametrize("tp", [2, 4, 8])
def test_each_collective_of_a_layer_holds_the_host_for_its_group(tp: int) -> None:
    fields = {"tp": tp, "dp": 2, "sequence_parallel": True, "num_attention_heads": 8}
    plain, checked = (calls(scenario(**fields, software=software)) for software in (UNCHECKED, CHECKED))
    added = Counter(
        {(group, round(s + tp * 0.25e-3, 9)): n for (group, s), n in plain.items() if group == "tp"}
    )
    assert added
    assert not added - checked


def in_turn(fields: dict[str, Any], software: dict[str, Any], stream: str) -> tuple[float, float, float]:
    """Seconds of a step whose collectives run beside kernels and of one where these wait for them, and of all
    collectives of ``stream``: not one kernel of the second runs beside one of them."""
    host, exchange = {"host_s_per_kernel": 0.0}, software.get("exchange", {})  # no host keeps them apart
    beside, waits = (
        simulate(
            scenario(**fields, software=software | {"host": host, "exchange": exchange | {IN_TURN: turns}})
        )
        for turns in (False, True)
    )
    spans = waits.spans
    compute, collectives = (spans[spans["stream"] == name] for name in ("compute", stream))
    for name, start_s, end_s in zip(
        collectives["name"], collectives["start_s"], collectives["end_s"], strict=True
    ):
        begun = compute["start_s"] < end_s - 1e-12
        beside_it = compute[begun & (compute["end_s"] > start_s + 1e-12)]
        assert beside_it.empty, (name, beside_it["name"].tolist())
    took_s = float((collectives["end_s"] - collectives["start_s"]).sum())
    return beside.step_time_s, waits.step_time_s, took_s


@settings(max_examples=12)
@given(tp=st.sampled_from([2, 4]), layers=st.integers(1, 3), overlap=st.booleans(), backward=st.booleans())
def test_kernels_and_collectives_that_take_turns_never_run_together(
    tp: int, layers: int, overlap: bool, backward: bool
) -> None:
    """And a step takes as long as with the overlap, or longer."""
    fields = {"tp": tp, "sequence_parallel": True, "num_layers": layers, "hidden_size": 1024}
    exchange = {"tp_comm_overlap": overlap, "tp_async_backward": backward}
    beside_s, waits_s, _ = in_turn(fields, {"preset": "nanotron-2024", "exchange": exchange}, "tp")
    assert waits_s >= beside_s * (1 - 1e-9)


@settings(max_examples=20)
@given(
    preset=st.sampled_from(["nanotron-2024", "megatron-core-2025"]),
    layers=st.integers(1, 4),
    zero=st.sampled_from([0, 1]),
    bucket=st.sampled_from([1e5, 1e6, 1e9]),
)
def test_gradients_that_take_turns_with_kernels_never_run_beside_a_backward(
    preset: str, layers: int, zero: int, bucket: float
) -> None:
    """And a step is longer by no more than they take."""
    fields = {"dp": 4, "zero": zero, "num_layers": layers, "hidden_size": 1024}
    software = {"preset": preset, "gradients": {"bucket_elements": bucket, "overlap_param_gather": False}}
    beside_s, waits_s, took_s = in_turn(fields, software, "dp")
    assert beside_s * (1 - 1e-9) <= waits_s <= (beside_s + took_s) * (1 + 1e-9)


def test_a_backward_waits_for_the_gradients_of_the_layer_before_it() -> None:
    """Two layers of nanotron, a bucket each: the first reduction is all that one hid behind."""
    fields = {"dp": 4, "num_layers": 2, "hidden_size": 1024, "seq_length": 1024}
    software = {"preset": "nanotron-2024", "gradients": {"bucket_elements": 1e5}}
    beside_s, waits_s, took_s = in_turn(fields, software, "dp")
    assert waits_s > beside_s + 0.1 * took_s


@pytest.mark.parametrize("preset", ["generic-fsdp", "torchtitan-2025", "llm-foundry-2023"])
def test_a_backward_waits_for_the_reductions_of_fsdp_but_for_no_gather(preset: str) -> None:
    """As one that overlaps no reduction at all."""
    fields = {"dp": 4, "zero": 3, "num_layers": 4, "hidden_size": 1024, "global_batch": 4}

    def step_s(software: dict[str, Any]) -> float:
        host = {"host_s_per_kernel": 0.0}  # no host keeps them apart
        run = scenario(**fields, software={"preset": preset, "host": host} | software)
        return simulate(run).step_time_s

    in_turn_s = step_s({"exchange": {IN_TURN: True}})
    assert in_turn_s > step_s({}) * 1.01
    assert in_turn_s == step_s({"gradients": {"overlap_grad_reduce": False}})


@pytest.mark.parametrize("preset", software_names())
def test_checked_jobs_of_one_hardware_queue_alone_have_collectives_in_turn(preset: str) -> None:
    """The debug level times collectives with events, for which the one queue waits."""
    software = get_software(preset)
    one_queue = any("CUDA_DEVICE_MAX_CONNECTIONS=1" in rule.says for rule in rules_of(preset))
    assert software.exchange.collectives_in_turn == (software.host.collective_checks and one_queue)


def test_a_host_that_is_ahead_hides_its_checks() -> None:
    """Small layers wait for the host, large ones do not."""
    small = {"tp": 2, "sequence_parallel": True}
    large = small | {
        "hidden_size": 8192,
        "num_attention_heads": 64,
        "ffn_hidden_size": 32768,
        "seq_length": 4096,
    }
    slower = {
        name: simulate(scenario(**size, software=CHECKED)).step_time_s
        / simulate(scenario(**size, software=UNCHECKED)).step_time_s
        for name, size in (("small", small), ("large", large))
    }
    assert slower["small"] > 1.5
    assert 1 <= slower["large"] < 1.05


def hosts_of(run: Scenario) -> dict[str, set[float]]:
    """What calls beside the layers cost the host, by name, on every class of ranks."""
    found: dict[str, set[float]] = {}
    for program in lowered(run).programs.classes:
        for op in program.ops:
            if isinstance(op.work, Collective):
                found.setdefault(op.name, set()).add(op.host_s)
    return found


@pytest.mark.parametrize("zero", [0, 1])
def test_what_is_checked_at_the_end_of_a_step(zero: int) -> None:
    """Gradients, gathered parameters, norm with loss, and the barrier."""
    fields = {"dp": 8, "zero": zero}
    plain, checked = (hosts_of(scenario(**fields, software=one)) for one in (UNCHECKED, CHECKED))
    added = {name: min(checked[name]) - min(plain[name]) for name in checked}
    group_s = 8 * CHECK_S_PER_RANK[False]
    assert added["gradient all_reduce"] == pytest.approx(group_s)
    assert added["gradient norm all_reduce"] == pytest.approx(group_s)  # of the loss: one rank has the model
    assert added["barrier"] == pytest.approx(group_s)
    if zero:
        assert added["parameter all_gather"] == pytest.approx(group_s)


def bucket_elements(run: Scenario) -> list[float]:
    """Of each reduction of gradients of the first rank, the elements, in order."""
    return [
        op.work.transfer.bytes / 4
        for op in lowered(run).programs.classes[0].ops
        if isinstance(op.work, Collective) and op.name in ("gradient all_reduce", "gradient reduce_scatter")
    ]


@pytest.mark.parametrize(("hidden", "each"), [(4096, 4), (2048, 3)])
def test_buckets_close_with_the_parameter_that_fills_them(hidden: int, each: int) -> None:
    """25 MiB of 16 bits are 13.1 M: of 4096 each matrix fills a bucket, of 2048 each of the MLP, and the rest
    of a layer together. Under ZeRO-1 nanotron has no DDP, and so no buckets."""
    sizes = {"hidden_size": hidden, "ffn_hidden_size": 4 * hidden, "num_attention_heads": 16}
    run, sharded = (scenario(dp=8, zero=zero, **sizes, software=UNCHECKED) for zero in (0, 1))
    found = bucket_elements(run)
    h2, head = hidden * hidden, 512 * hidden + 2 * hidden  # a head, with its norm, does not fill a bucket
    layers = found[1:-1]
    assert found[0] == 4 * h2 + head
    if each == 4:
        assert layers[:2] == [4 * h2, h2]
        assert layers[2] == pytest.approx(3 * h2, rel=0.01)
        assert layers[3:7] == [4 * h2, *layers[:3]]
    else:
        assert layers[0] == 4 * h2
        assert layers[1] == pytest.approx((1 + 3) * h2, rel=0.01)
        assert layers[2:5] == [4 * h2, *layers[:2]]
    assert sum(found) == pytest.approx(12 * h2 * run.model.num_layers, rel=0.05)
    assert bucket_elements(sharded) == [sum(found)]
    narrow = {"preset": "nanotron-2025", "gradients": {"main_grad_bytes": 2}}  # there is DDP again
    assert len(bucket_elements(scenario(dp=8, zero=1, **sizes, software=narrow))) == len(found)


def test_gradients_that_are_reduced_at_once_hide_behind_nothing() -> None:
    """Under ZeRO-1 as nanotron has it; the buckets of DDP hide, and so would those of others."""
    fields = {"dp": 8, "hidden_size": 2048, "num_attention_heads": 16, "ffn_hidden_size": 8192}
    for zero, hidden in ((0, True), (1, False)):
        free, held = (
            simulate(scenario(**fields, zero=zero, software=nanotron_with(reduction)))
            for reduction in ("buckets", "nanotron-buckets")
        )
        reduced = sum(
            span.end_s - span.start_s
            for span in held.iter_spans()
            if span.rank == 0 and span.name in ("gradient reduce_scatter", "gradient all_reduce")
        )
        exposed = [one.exposed_communication_s["dp"] / reduced for one in (free, held)]
        assert exposed[0] < 0.9
        assert (exposed[1] < 0.9) == hidden
        if zero:
            assert held.step_time_s > free.step_time_s
            assert exposed[1] >= 1 - 1e-9


@pytest.mark.parametrize(("dp", "pp"), [(2, 1), (8, 1), (4, 2)])
def test_parameters_come_back_as_lists_with_a_copy_for_each_and_each_rank(dp: int, pp: int) -> None:
    """Six tensors a layer, a table and a norm, and a head at each end; the host makes every copy."""
    model = {
        "mlp": "swiglu",
        "tied_embeddings": False,
        "position": "rope",
        "norm": "rmsnorm",
        "biases": False,
    }
    schedule = "none" if pp == 1 else "1f1b"
    run = scenario(dp=dp, pp=pp, zero=1, **model, schedule=schedule, software=UNCHECKED)
    first = lowered(run).programs.classes[0].ops
    (copies,) = (op for op in first if op.name == "copies of parameters")
    (flat,) = (op for op in first if op.name == "flat lists")
    layers = build_stages(run)[0].layers
    tensors = 6 * layers + 1 + (2 if pp == 1 else 0)  # table; final norm and head
    assert copies.host_s == pytest.approx(tensors * dp * COPY_HOST_S)
    assert flat.host_s == pytest.approx(2 * dp * COPY_HOST_S)
    assert isinstance(copies.work, Compute)
    assert isinstance(flat.work, Compute)
    (gather,) = (op.work for op in first if op.name == "parameter all_gather")
    assert isinstance(gather, Collective)
    assert (flat.work.bytes, copies.work.bytes) == (4 * gather.transfer.bytes, 2 * gather.transfer.bytes)
    for other in (scenario(dp=dp, software=UNCHECKED), scenario(dp=dp, zero=1, software="megatron-2023")):
        assert "flat lists" not in {op.name for op in lowered(other).programs.classes[0].ops}


def nanotron_with(reduction: str) -> dict[str, Any]:
    """nanotron with buckets of another kind, and no time of the host."""
    gradients = {"reduction": reduction}
    return {"preset": "nanotron-2024", "host": {"host_s_per_kernel": 0.0}, "gradients": gradients}


def test_checked_hosts_hold_no_more_buffers_in_flight_than_others() -> None:
    fields = {"tp": 4, "sequence_parallel": True}
    plain, checked = (
        dict(simulate(scenario(**fields, software=s)).memory[0].terms) for s in (UNCHECKED, CHECKED)
    )
    assert checked.pop("in flight") < plain.pop("in flight")
    assert checked == pytest.approx(plain, rel=1e-12)


# How a measurement shows it ------------------------------------------------------------------------------


# What else these runs have --------------------------------------------------------------------------------


def test_later_runs_have_the_head_beside_the_loss() -> None:
    """16 layers, a head of four layers' cost, 8 stages: as in the sweep's 1.3B model."""
    fields = {
        "num_layers": 16, "pp": 8, "hidden_size": 2048, "num_attention_heads": 32, "ffn_hidden_size": 8192,
        "vocab_size": 131072, "mlp": "swiglu", "stage_split": "flops_balanced", "schedule": "1f1b",
    }  # fmt: skip
    for preset, head in (("nanotron-2024", 6), ("nanotron-2025", 7)):
        stages = build_stages(scenario(**fields, software=preset))
        assert [stage.layers for stage in stages] == [3, 2, 3, 2, 3, 2, 1, 0]
        assert [stage.head for stage in stages] == [i == head for i in range(8)]
        assert [stage.loss for stage in stages] == [i == 7 for i in range(8)]
    assert (
        get_software("nanotron-2025").host.host_s_per_kernel
        == get_software("nanotron-2024").host.host_s_per_kernel
    )


def test_messages_between_hosts_grow_with_their_chunks_up_to_the_nic() -> None:
    cluster = cluster_of(p5())
    small = replace(
        cluster, interconnect=replace(cluster.interconnect, message_chunk_bytes=NCCL_MESSAGE_CHUNK_BYTES)
    )
    rate, default = (message_transfer(1e9, "unit", c).ceiling_bytes_per_s for c in (cluster, small))
    assert default == 1.98e10
    assert rate == pytest.approx(min(4 * default, cluster.nic_bytes_per_s_per_gpu))
    assert rate > 2 * default
    assert get_interconnect("ib-ndr400-x8").message_chunk_bytes == NCCL_MESSAGE_CHUNK_BYTES


@pytest.mark.parametrize(("chunk", "times"), [("128 KiB", 1.0), ("192 KiB", 1.5), ("2 MiB", None)])
def test_messages_of_a_job_are_cut_as_it_tells_nccl(chunk: str, times: float | None) -> None:
    """Both a message to the next stage and those of an all-to-all; neither is faster than the NIC."""

    def rates(**fields: str) -> tuple[float, float]:
        block = {"gpu": "B200-SXM-180GB", "gpus": 64, "gpus_per_node": 8, "interconnect": "ib-ndr400-x8"}
        cluster = cluster_of(ClusterSpec.model_validate(block | fields))
        everyone = GroupPlacement(ranks=64, domains=8)
        each = collective_transfer("all_to_all", 1e9, everyone, cluster)
        return message_transfer(1e9, "unit", cluster).ceiling_bytes_per_s, each.ceiling_bytes_per_s * each.nic

    (message, pairs), nic = rates(), 0.94 * 50e9
    cut_message, cut_pairs = rates(message_chunk=chunk)
    assert cut_message == pytest.approx(times * message if times else nic, rel=0.06)
    assert cut_pairs == pytest.approx(min(times * pairs, nic) if times else nic, rel=0.06)
    assert cut_message <= 50e9


def test_no_message_is_cut_longer_than_an_eighth_of_a_buffer() -> None:
    """NCCL init.cc, computeBuffSizes. A NIC of 400 GB/s a GPU leaves both rates to the chunks."""
    network = replace(get_interconnect("ib-ndr400-x8"), link_bytes_per_s=4e11)
    everyone = GroupPlacement(ranks=64, domains=8)

    def rates(chunk: float) -> tuple[float, float]:
        cluster = replace(cluster_of(p5()), interconnect=replace(network, message_chunk_bytes=chunk))
        each = collective_transfer("all_to_all", 1e9, everyone, cluster)
        return message_transfer(1e9, "unit", cluster).ceiling_bytes_per_s, each.ceiling_bytes_per_s

    own, longest, longer = (rates(size * NCCL_MESSAGE_CHUNK_BYTES) for size in (1, 4, 16))
    assert longer == longest
    assert longest[0] == pytest.approx(4 * own[0])
    assert longest[1] > 2 * own[1]


def test_each_parameter_is_copied_once_however_many_gathers_bring_them() -> None:
    """Two chunks that are gathered apart share the copies of one gather; each takes longer on a Grace."""
    fields = {"dp": 4, "pp": 2, "zero": 1, "vpp": 2, "schedule": "interleaved"}

    def copies_s(ahead: bool, **machine: Any) -> list[float]:
        software = {"preset": "nanotron-2024", "gradients": {"overlap_param_gather": ahead}}
        ops = lowered(scenario(**fields, **machine, software=software)).programs.classes[0].ops
        return [op.host_s for op in ops if op.name == "copies of parameters"]

    (at_once,) = copies_s(ahead=False)
    assert len(copies_s(ahead=True)) == 2
    assert sum(copies_s(ahead=True)) == pytest.approx(at_once)
    (slower,) = copies_s(ahead=False, node={"launch_factor": 2.5})
    assert slower == pytest.approx(2.5 * at_once)
