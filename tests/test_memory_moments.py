"""The four moments of a peak: the loss, the layers of a backward, the end of the first one, and the update.

Each is made the fullest by a scenario, and what is held then is written out; nothing of the others is there.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from small_scenarios import scenario

from stepsim.sim.plan.axes import layout_values
from stepsim.sim.plan.screen.screen import screen
from stepsim.sim.plan.space import space_of
from stepsim.sim.result.step import StageMemory
from stepsim.sim.simulate import simulate

VOCABULARY = 65536
"""So wide that the loss holds more than all layers."""

TOKENS = 2 * 128
"""Of a microbatch of the small scenario."""


def fsdp(*, preset: str = "generic-fsdp", **groups: dict[str, Any]) -> dict[str, Any]:
    """Software whose times are as small as the scenarios, with these fields of its groups."""
    host = {"host_s_per_kernel": 6e-6, "allocator_overhead": 0.0, **groups.pop("host", {})}
    gradients = {"reducer_copy": False, **groups.pop("gradients", {})}
    kernels = {"optimizer_implementation": "for-loop", **groups.pop("kernels", {})}
    return {"preset": preset, "host": host, "gradients": gradients, "kernels": kernels, **groups}


def bill_of(**fields: Any) -> StageMemory:
    return simulate(scenario(**{"microbatches": 1, **fields})).memory[0]


# The loss -------------------------------------------------------------------------------------------


def test_at_the_loss_no_layer_is_recomputed_and_no_gradient_of_torch_is_there() -> None:
    fields: dict[str, Any] = {"vocab_size": VOCABULARY, "hidden_size": 64, "ffn_hidden_size": 256}
    bill = bill_of(**fields, recompute="full", software=fsdp())
    kept = 8 * TOKENS * 64 * 2  # each layer's input alone
    assert bill.peak_action == "0F0"
    assert bill.terms["logits"] == TOKENS * VOCABULARY * 3 * 4  # eager: three of FP32
    assert bill.terms["gradients"] == 0
    assert kept <= bill.terms["activations"] < kept + 4 * TOKENS * 64 * 4  # and ends, but no layer's own


@pytest.mark.parametrize(("tp", "others"), [(1, 3), (2, 4)])
def test_a_trainer_that_holds_logits_has_them_beside_all_that_the_loss_makes(tp: int, others: int) -> None:
    fields: dict[str, Any] = {"vocab_size": VOCABULARY, "hidden_size": 64, "ffn_hidden_size": 256, "tp": tp}
    for holds in (False, True):
        bill = bill_of(**fields, recompute="full", software=fsdp(kernels={"holds_logits": holds}))
        assert bill.terms["logits"] == TOKENS * VOCABULARY / tp * (others + holds) * 4


@pytest.mark.parametrize("sequences", [1, 2, 4])
def test_metrics_copy_logits_of_several_sequences(sequences: int) -> None:
    """Of one sequence all but the last token are in one piece; a copy is of the type that the head gave."""
    wide: dict[str, Any] = {"vocab_size": VOCABULARY, "hidden_size": 64, "ffn_hidden_size": 256}
    held, steps_s = list[float](), list[float]()
    for copies in (False, True):
        kernels = {"cross_entropy": "fused", "logits_fp32": True, "metrics_copy_logits": copies}
        run = scenario(**wide, microbatches=1, micro_batch=sequences, software=fsdp(kernels=kernels))
        result = simulate(run)
        held.append(result.memory[0].terms["logits"])
        steps_s.append(result.step_time_s)
    logits = sequences * 128 * VOCABULARY
    assert held == [logits * 6, logits * (8 if sequences > 1 else 6)]
    assert (steps_s[1] > steps_s[0]) is (sequences > 1)


@pytest.mark.parametrize(
    ("kernels", "share"),
    [
        ({"cross_entropy": "eager", "logits_fp32": True}, 2),  # the head's 16-bit output
        ({"cross_entropy": "eager", "logits_fp32": False}, 0),  # blocks of one size are used again
        ({"cross_entropy": "fused", "logits_fp32": True}, 0),
    ],
)
def test_freed_logits_of_16_bit_are_of_no_use_at_the_loss(kernels: dict[str, Any], share: int) -> None:
    fields: dict[str, Any] = {"vocab_size": VOCABULARY, "hidden_size": 64, "ffn_hidden_size": 256}
    bill = bill_of(**fields, software=fsdp(kernels=kernels))
    assert bill.peak_action == "0F0"
    assert bill.terms["allocator"] == pytest.approx(TOKENS * VOCABULARY * share)


@pytest.mark.parametrize("chunks", [2, 4])
def test_of_a_loss_in_chunks_those_of_one_are_of_no_use(chunks: int) -> None:
    fields: dict[str, Any] = {"vocab_size": VOCABULARY, "hidden_size": 64, "ffn_hidden_size": 256}
    kernels = {"cross_entropy": "eager", "logits_fp32": True, "loss_chunks": chunks}
    bill = bill_of(**fields, software=fsdp(kernels=kernels))
    assert bill.peak_action == "0F0"
    assert bill.terms["allocator"] == pytest.approx(TOKENS * VOCABULARY * 2 / chunks)


def test_what_is_of_no_use_at_the_loss_decides_where_the_peak_is() -> None:
    """As vocabularies widen, memory nowhere grows by more than where the loss is the peak throughout."""
    kernels = {"cross_entropy": "eager", "logits_fp32": True}
    wide = [
        bill_of(vocab_size=64 * rows, recompute="full", seq_length=256, software=fsdp(kernels=kernels))
        for rows in range(72, 120, 4)
    ]
    assert [wide[0].peak_action, wide[-1].peak_action] == ["0B0", "0F0"]
    steps = [after.peak_bytes - before.peak_bytes for before, after in pairwise(wide)]
    assert max(steps) == pytest.approx(steps[-1])


@pytest.mark.parametrize(
    ("implementation", "idle"),
    [("fsdp1", 1), ("fsdp2", 1), ("xla", 0), ("megatron-fsdp", 0), ("deepspeed", 0)],
)
def test_blocks_of_the_stream_that_reduces_are_reserved_beside_the_loss(
    implementation: str, idle: int
) -> None:
    """Gradients of shards are not there; what they lay in last step is for no other stream."""
    software = fsdp(sharding={"implementation": implementation})
    bill = bill_of(dp=4, zero=3, vocab_size=VOCABULARY, recompute="full", software=software)
    assert bill.peak_action == "0F0"
    assert bill.terms.get("idle blocks", 0.0) == pytest.approx(idle * 4 * bill.parameters / 4)
    assert bill.releasable_bytes == bill.terms.get("idle blocks", 0.0)


def test_no_block_is_idle_where_the_shards_are_there_at_the_peak() -> None:
    """With two microbatches the second one's loss has the first one's gradients beside it."""
    fields: dict[str, Any] = {"dp": 4, "zero": 3, "vocab_size": VOCABULARY, "recompute": "full"}
    two = bill_of(**fields, microbatches=2, software=fsdp())
    one = bill_of(**fields, software=fsdp())
    assert two.peak_action == "0F1"
    assert "idle blocks" not in two.terms
    assert two.terms["gradients"] == pytest.approx(one.terms["idle blocks"])
    assert two.peak_bytes == pytest.approx(one.peak_bytes)


def test_whole_gradients_that_wait_lie_beside_blocks_of_shards() -> None:
    software = fsdp(sharding={"reduce": "last"})
    bill = bill_of(dp=4, zero=3, microbatches=3, vocab_size=VOCABULARY, recompute="full", software=software)
    assert bill.terms["gradients"] == pytest.approx(4 * bill.parameters)
    assert bill.terms["idle blocks"] == pytest.approx(bill.parameters)


def test_an_allocator_without_room_gives_idle_blocks_back() -> None:
    """As microbatches grow, idle blocks go first, and what is needed goes on as if nothing had happened."""
    fields: dict[str, Any] = {"dp": 4, "zero": 3, "vocab_size": VOCABULARY, "hidden_size": 2048}
    bills = [bill_of(**fields, micro_batch=n, recompute="full", software=fsdp()) for n in range(652, 666)]
    states = [("idle blocks" in bill.terms, bill.fits) for bill in bills]
    assert states == sorted(states, reverse=True)
    assert set(states) == {(True, True), (False, True), (False, False)}
    needed = [after.needed_bytes - before.needed_bytes for before, after in pairwise(bills)]
    assert needed == pytest.approx([needed[0]] * len(needed))


# The layers of a backward ---------------------------------------------------------------------------


def test_at_the_layers_of_a_backward_the_logits_are_gone() -> None:
    whole = bill_of(recompute="full", seq_length=1024, software=fsdp())
    other = bill_of(recompute="full", seq_length=1024, vocab_size=1024, software=fsdp())
    assert whole.peak_action == other.peak_action == "0B0"
    assert whole.terms["logits"] == other.terms["logits"] == 0
    assert whole.terms["activations"] == other.terms["activations"]


# The end of the first backward, and of all later ones -----------------------------------------------


def test_gradients_of_torch_come_with_the_first_backward_and_stay() -> None:
    """With one microbatch they lie beside no activations, with two beside all of the second."""
    one = bill_of(software=fsdp(), seq_length=1024)
    two = bill_of(software=fsdp(), seq_length=1024, microbatches=2)
    width = 4 * two.parameters
    assert one.terms["gradients"] == 0
    assert two.terms["gradients"] == width
    assert two.terms["activations"] == one.terms["activations"]


@pytest.mark.parametrize(("implementation", "lasts"), [("deepspeed", 1), ("megatron-fsdp", 1), ("fsdp2", 0)])
def test_buffers_of_gradients_last_where_the_runtime_makes_them_once(implementation: str, lasts: int) -> None:
    software = fsdp(sharding={"implementation": implementation})
    bill = bill_of(dp=4, zero=3, hidden_size=1024, software=software)
    shards = 4 * bill.parameters / 4
    moving = max(bill.moving, key=lambda moment: sum(moment[1]))[1][2]
    assert bill.terms["gradients"] - moving == pytest.approx(lasts * shards)


@pytest.mark.parametrize("dp", [2, 4])
@pytest.mark.parametrize("persistent", [False, True])
def test_shards_that_are_reduced_at_last_come_in_place_of_whole_gradients(dp: int, persistent: bool) -> None:
    """Whole ones gather through all microbatches; a buffer that lasts is there meanwhile."""
    software = fsdp(sharding={"reduce": "last"}, gradients={"persistent_gradients": persistent})
    bill = bill_of(dp=dp, zero=3, microbatches=3, software=software)
    whole = 4 * bill.parameters
    after = [parts[2] for _, parts in bill.moving][4:]  # behind the first backward
    assert min(after[:-1]) == pytest.approx(whole)
    assert after[-1] == pytest.approx(0 if persistent else whole / dp)


# The update -----------------------------------------------------------------------------------------


def test_torch_optimizers_for_all_parameters_hold_the_roots_of_all_second_moments() -> None:
    fields: dict[str, Any] = {"hidden_size": 1024, "micro_batch": 1, "seq_length": 64}
    with_roots = bill_of(**fields, software=fsdp(kernels={"optimizer_implementation": "foreach"}))
    without = bill_of(**fields, software=fsdp())
    n = without.parameters
    assert with_roots.peak_action == "update"
    assert with_roots.terms["gradients"] == pytest.approx((4 + 4) * n)  # gradients, and as many roots
    assert with_roots.terms["activations"] == with_roots.terms["logits"] == 0
    assert without.peak_action != "update"


@pytest.mark.parametrize(
    ("optimizer", "share"), [("adamw", 1.0), ("sgd", 1.0), ("lion", 0.0), ("adafactor", 0.0)]
)
def test_other_optimizers_make_what_theirs_make(optimizer: str, share: float) -> None:
    """SGD's gradients with weight decay are new ones; Lion and Adafactor go tensor by tensor."""
    fields: dict[str, Any] = {"hidden_size": 1024, "micro_batch": 1, "seq_length": 64, "optimizer": optimizer}
    bill = bill_of(**fields, software=fsdp(kernels={"optimizer_implementation": "foreach"}))
    most = max(parts[2] for _, parts in bill.moving)
    assert most == pytest.approx((4 + 4 * share) * bill.parameters)


def test_of_muon_what_others_update_alone_has_roots() -> None:
    fields: dict[str, Any] = {"hidden_size": 1024, "micro_batch": 1, "seq_length": 64, "optimizer": "muon"}
    bill = bill_of(**fields, software=fsdp(kernels={"optimizer_implementation": "foreach"}))
    most = max(parts[2] for _, parts in bill.moving)
    assert 4 * bill.parameters < most < 4.2 * bill.parameters


def test_an_update_on_the_host_holds_none_of_them() -> None:
    copies = fsdp(kernels={"optimizer_implementation": "foreach"})
    fields: dict[str, Any] = {"hidden_size": 1024, "dp": 4, "zero": 3, "cpu_offload": True}
    assert bill_of(**fields, software=copies).moving == bill_of(**fields, software=fsdp()).moving


@pytest.mark.parametrize("way", ["fused", "foreach", "for-loop"])
def test_copies_of_an_update_are_screened_where_gradients_stay(way: str) -> None:
    """Few tokens, so that the update holds most where torch makes roots of all second moments."""
    lasting: dict[str, Any] = {"persistent_gradients": True}
    software = fsdp(kernels={"optimizer_implementation": way}, gradients=lasting)
    run = scenario(dp=8, hidden_size=1024, seq_length=64, software=software)
    fixed = {name: values[:1] for name, values in layout_values(run).items()}
    space = space_of(run, vary=fixed | {"parallelism.tp": [1, 2], "parallelism.zero": [0, 1, 3]})
    found, updates = screen(space, within=float("inf")), set()
    for i in range(len(space)):
        (stage,) = simulate(space.scenario_of(i)).memory
        assert found.needed_bytes[i] == pytest.approx(stage.needed_bytes, rel=1e-9)
        updates.add(stage.peak_action == "update")
    assert (True in updates) is (way == "foreach")


# What is beside them all step long ------------------------------------------------------------------


@pytest.mark.parametrize(("dp", "copies"), [(1, 0), (2, 1)])
def test_replicas_of_torch_reduce_in_buckets_of_all_gradients(dp: int, copies: int) -> None:
    run: dict[str, Any] = {"dp": dp, "seq_length": 64, "microbatches": 2}
    with_buckets = bill_of(**run, software=fsdp(gradients={"reducer_copy": True}))
    without = bill_of(**run, software=fsdp())
    more = with_buckets.terms["gradients"] - without.terms["gradients"]
    assert more == 4 * copies * without.parameters


@pytest.mark.parametrize("queries_of_one", [1, 2, 4])
def test_repeated_heads_keep_keys_and_values_of_each_query_head(queries_of_one: int) -> None:
    def of_a_layer(repeats: bool) -> float:
        def held(layers: int) -> float:
            run = scenario(
                num_layers=layers,
                num_query_groups=4 // queries_of_one,
                microbatches=1,
                software=fsdp(kernels={"repeats_kv": repeats}, gradients={"persistent_gradients": True}),
            )
            return simulate(run).memory[0].terms["activations"]

        return held(3) - held(2)

    width = 256
    assert of_a_layer(True) - of_a_layer(False) == pytest.approx(
        TOKENS * 2 * (width - width / queries_of_one) * 2
    )
