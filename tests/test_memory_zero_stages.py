"""What a higher ZeRO stage may add to a peak: the shard that lies beside the whole, and nothing else."""

from __future__ import annotations

import re
from typing import Any

import pytest
from checkout import ROOT
from hypothesis import given
from hypothesis import strategies as st
from law_examples import examples
from small_scenarios import changed, layouts, lowered

from stepsim.sim.lowering.optimizers import updated_parameters
from stepsim.sim.lowering.optional_parts import sharded_actions_of
from stepsim.sim.result.step import StageMemory
from stepsim.sim.scenario.load import scenario_from_document
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.scenario.refusal import NotSupported
from stepsim.sim.simulate import simulate


def bills(run: Scenario) -> tuple[StageMemory, ...]:
    return simulate(run).memory


def sharded_bytes(bill: StageMemory) -> float:
    """The peak without what follows from times (how far a host gets ahead), and from what comes and goes."""
    return bill.peak_bytes - bill.terms["in flight"] - bill.terms["allocator"]


def beside_bytes(run: Scenario, r: int) -> float:
    """Shards of parameters and gradients of a rank, which lie beside what is gathered or not yet reduced."""
    plan = lowered(run).plan
    sharding = sharded_actions_of(plan)
    if sharding is None:
        return 0.0
    local = plan.local
    each = 8.0 if sharding.rule.master_only else float(local.element_bytes + local.grad_bytes)
    return updated_parameters(plan, r) * each


@pytest.mark.slow
@examples(12)
@given(data=st.data())
def test_a_higher_stage_adds_no_more_than_shards_beside_the_whole(data: st.DataObject) -> None:
    """What a rank gathers or has not reduced yet is never more than what the stage before holds all along."""
    hidden = data.draw(st.sampled_from([256, 1024, 4096]))
    fields: dict[str, Any] = {"dp": data.draw(st.sampled_from([2, 4, 8])), "hidden_size": hidden, "zero": 1}
    schedule = data.draw(st.sampled_from(["1f1b", "interleaved", "gpipe"]))
    run = data.draw(layouts(**fields, schedule=schedule, seq_length=data.draw(st.sampled_from([128, 1024]))))
    before = bills(changed(run, parallelism={"zero": 0}))
    for zero in (1, 2, 3):
        higher = changed(run, parallelism={"zero": zero})
        try:
            after = bills(higher)
        except NotSupported:
            return
        for one, other in zip(before, after, strict=True):
            more = sharded_bytes(other) - sharded_bytes(one)
            assert more <= beside_bytes(higher, other.pp) * (1 + 1e-9) + 1.0
        before = after


MEMORY = (ROOT / "docs" / "memory.md").read_text(encoding="utf-8")
SHOWN = re.compile(r"^\| `([\w-]+)` \| ([\d.]+) GB \| ([\d.]+) GB \| ([\d.]+) GB \|", re.MULTILINE)


def shown(preset: str, zero: int) -> Scenario:
    """The page's replicas reduce gradients where they lie, as Megatron's do, and torch's if told to."""
    software = {"preset": preset, "gradients": {"reducer_copy": False}}
    return scenario_from_document(
        {
            "model": "llama3-8b",
            "cluster": {
                "gpu": "H100-SXM5-80GB",
                "gpus": 32,
                "gpus_per_node": 8,
                "interconnect": "ib-ndr400-x8",
            },
            "parallelism": {"tp": 4, "pp": 4, "zero": zero},
            "training": {
                "global_batch": 16,
                "micro_batch": 1,
                "seq_length": 4096,
                "precision": "bf16",
                "recompute": "full",
            },
            "schedule": "1f1b",
            "software": software,
        },
        "shown",
    )


@pytest.mark.parametrize("row", SHOWN.findall(MEMORY), ids=lambda row: row[0])
def test_the_page_shows_what_is_so(row: tuple[str, ...]) -> None:
    software, *peaks = row
    for zero, peak in enumerate(peaks, 1):
        found = max(one.peak_bytes for one in bills(shown(software, zero)))
        assert f"{found / 1e9:.2f}" == peak


def test_the_page_shows_both_cases() -> None:
    rows = {row[0]: [float(peak) for peak in row[1:]] for row in SHOWN.findall(MEMORY)}
    assert rows["torchtitan-2025"][1] > rows["torchtitan-2025"][0]
    assert rows["megatron-core-2025"] == sorted(rows["megatron-core-2025"], reverse=True)
