"""What screened layouts need in memory is what their steps do, where little else does."""

from __future__ import annotations

from typing import Any

import pytest
from small_scenarios import scenario

from stepsim.sim.plan.axes import layout_values
from stepsim.sim.plan.screen.screen import screen
from stepsim.sim.plan.space import space_of
from stepsim.sim.scenario.load import scenario_from_document
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.simulate import simulate


def test_ranks_that_are_placed_unevenly_have_buffers_of_their_own() -> None:
    """Of three stages of four ranks on hosts of three GPUs, each crosses hosts in its own way."""
    fields = {"pp": 3, "dp": 4, "gpus_per_node": 3, "num_layers": 9, "schedule": "1f1b"}
    run = scenario(**fields, software="generic-fsdp", hidden_size=1024)
    fixed = {name: values[:1] for name, values in layout_values(run).items()}
    space = space_of(run, vary=fixed | {"training.micro_batch": [1, 2], "parallelism.zero": [1, 3]})
    found = screen(space, within=float("inf"))
    for i in range(len(space)):
        whole = max(stage.needed_bytes for stage in simulate(space.scenario_of(i)).memory)
        assert found.needed_bytes[i] == pytest.approx(whole, rel=1e-9)


def needed_as_replayed(run: Scenario) -> None:
    """The only layout of that run needs what its fullest stage does."""
    space = space_of(run, vary={name: values[:1] for name, values in layout_values(run).items()})
    found = screen(space, within=float("inf"))
    whole = max(stage.needed_bytes for stage in simulate(run).memory)
    assert found.needed_bytes[0] == pytest.approx(whole, rel=1e-9)


@pytest.mark.parametrize("schedule", ["1f1b", "dualpipe"])
def test_outputs_are_kept_of_the_microbatches_that_pass_a_stage(schedule: str) -> None:
    """Of all of them, or of those of one way where microbatches travel both."""
    software = {"preset": "generic-megatron", "pipeline": {"keeps_outputs": "all"}}
    run = scenario(gpu="H100-SXM5-80GB", software=software, pp=4, microbatches=16, schedule=schedule)
    assert simulate(run).memory[0].terms["outputs"] > 0
    needed_as_replayed(run)


def test_late_buffers_give_back_no_more_than_came_before_them() -> None:
    """A gradient in 32 bit of all parameters, behind activations of a few tokens."""
    needed_as_replayed(
        scenario(
            gpu="H100-SXM5-80GB",
            software={"preset": "deepspeed-zero3-2021", "gradients": {"wrapper": "deepspeed"}},
            dp=2,
            zero=1,
            precision="fp16",
            seq_length=128,
            micro_batch=1,
            vocab_size=128,
            hidden_size=2048,
        )
    )


def test_what_an_allocator_gives_back_is_not_needed() -> None:
    """Late buffers of a gather share their bytes with activations, as screened and as replayed."""
    cluster = {"gpu": "H100-SXM5-80GB", "gpus": 16, "interconnect": "efa-3200"}
    layout = {"tp": 4, "pp": 2, "dp": 2, "zero": 1}
    training = {"micro_batch": 1, "global_batch": 64, "seq_length": 4096, "precision": "bf16"}
    document = {"model": "llama3-8b", "cluster": cluster, "parallelism": layout, "training": training}
    run = scenario_from_document(document | {"software": "nanotron-2024", "schedule": "1f1b"}, "nanotron")
    space = space_of(run, vary={name: values[:1] for name, values in layout_values(run).items()})
    memory = simulate(run).memory
    needed_bytes = max(stage.needed_bytes for stage in memory)
    assert max(stage.peak_bytes for stage in memory) > needed_bytes + 1e9
    found = screen(space, within=float("inf"))
    assert found.needed_bytes[0] >= needed_bytes * (1 - 1e-9)
    assert found.needed_bytes[0] < max(stage.peak_bytes for stage in memory) - 1e9


def test_gradients_that_go_to_the_host_are_kept_where_several_backwards_make_them() -> None:
    """Of layouts with one backward and with two, whose gradients are reduced behind the last one."""
    software = {
        "preset": "megatron-core-2025",
        "sharding": {"implementation": "fsdp2", "reduce": "last"},
        "gradients": {"persistent_gradients": True},
    }
    own = scenario(software=software, dp=4, microbatches=2, micro_batch=1, cpu_offload=True)
    vary: dict[str, list[Any]] = {"parallelism.zero": [2, 3], "training.micro_batch": [2, 1]}
    rest = {name: values[:1] for name, values in layout_values(own).items() if name not in vary}
    space = space_of(own, vary={**rest, **vary})
    found = screen(space, within=float("inf"))
    assert len(space) == 4
    for i in range(len(space)):
        run = space.scenario_of(i)
        whole = max(stage.needed_bytes for stage in simulate(run).memory)
        assert found.needed_bytes[i] == pytest.approx(whole, rel=1e-9)
