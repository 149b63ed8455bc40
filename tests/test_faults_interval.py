"""The best interval between checkpoints, where writing takes longer than the formula's: tried and offered."""

from __future__ import annotations

from faults_campaigns import crashes, document, plan_of

from stepsim.sim.reliability.planning.blocks import blocks_of
from stepsim.sim.reliability.study.optimum import find_optimum
from stepsim.sim.reliability.study.study import many, study
from stepsim.sim.reliability.study.variants import mitigation_variants, worth
from stepsim.sim.scenario.load import campaign_from_document

SLOW_WRITES = {
    "storage": {
        "every": "60 min",
        "mode": "async",
        "snapshot_stall": "10 ms",
        "persist": "4 min",
        "load": "30 s",
    }
}


def test_the_shortest_interval_that_can_be_written_is_offered_and_tried() -> None:
    """The formula says some seconds, writing takes 4 min: a copy every 4 min, and a curve up to now."""
    doc = document(checkpoint=SLOW_WRITES, faults=crashes("3 h"), run={"work": "5 d", "replications": 4})
    blocks = blocks_of(campaign_from_document(doc, "test"))
    found = study(plan_of(doc), blocks.run, replications=4)
    optimum = find_optimum(found)
    assert optimum is not None
    tried = [every for every, _ in optimum.points]
    assert optimum.formula_s < 60 < 240 == tried[0] == optimum.simulated_s
    assert tried[-1] == 3600
    assert len(tried) >= 5
    assert optimum.at_edge
    (offer,) = [one for one in mitigation_variants(found) if "a checkpoint every" in one.name]
    assert offer.name == "a checkpoint every 4 min"
    assert worth(found, offer, *many([offer.plan], 4)).gain.mean > 0.05
