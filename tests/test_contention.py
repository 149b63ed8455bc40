"""Communications of a step that meet on a link of the fabric slow each other down as the flow model says.

Every job here is placed, routed, folded and replayed as a scenario's step is, with a few communications in
place of its programs, so that times have closed forms. One GPU a host, one NIC of 50 GB/s.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_scenarios import lowered, scenario
from typer.testing import CliRunner

from stepsim.cli.main import app
from stepsim.sim.engine.bounds import bounds
from stepsim.sim.engine.record import Record
from stepsim.sim.engine.replay import replay
from stepsim.sim.fold.fold import folded, unfolded
from stepsim.sim.fold.loads import link_loads
from stepsim.sim.lowering.lower import Lowered
from stepsim.sim.network.transfer import Transfer
from stepsim.sim.program.program import Collective, Exchange, MessageEnd, Op, Program
from stepsim.sim.simulate import simulate

NIC = 8 * 50e9 * 0.978
"""The one GPU of a host has the NICs of eight; large messages reach so much of their line rate."""

SIZE = 1e9
RING = (("nic.out", 1.0), ("nic.in", 1.0))
MESSAGE = (("nic", 1.0),)


def made(programs: list[list[Op]], **fields: Any) -> Lowered:
    """The programs of pipeline ranks, on the machine of a scenario."""
    schedule = "1f1b" if fields.get("pp", 1) > 1 else "none"
    step = lowered(scenario(schedule=schedule, gpus_per_node=1, interconnect="ib-ndr400-x8", **fields))
    built = replace(step.programs, classes=tuple(Program(ops=tuple(ops)) for ops in programs))
    return replace(step, programs=built)


def job(programs: list[list[Op]], **fields: Any) -> Record:
    """Their replay, folded as unfolded."""
    step = made(programs, **fields)
    ready = folded(step)
    record = replay(ready.programs)
    assert record.makespan_s == pytest.approx(replay(unfolded(step).programs).makespan_s, rel=1e-12)
    return record


def collective(kind: str = "all_gather", pattern: str = "ring") -> Op:
    return Op(kind, "dp", "dp", Collective(kind, "dp", Transfer(0.0, SIZE, math.inf, RING, 0, pattern)))


def message(peer: int, *, send: bool, size: float = SIZE, tag: str = "0F0") -> Op:
    part = MessageEnd(send, peer, tag, Transfer(0.0, size, math.inf, MESSAGE))
    return Op("exchange", f"pp {peer}", "pp", Exchange((part,)))


def tree(leaf: int, ratio: float) -> dict[str, Any]:
    return {"kind": "fat-tree", "nodes_per_leaf": leaf, "oversubscription": ratio}


def test_two_rings_over_one_oversubscribed_spine_take_twice_as_long() -> None:
    """Stages alternate over hosts, so both rings leave each leaf once; 4:1 leaves one NIC's rate for both."""
    place = {"pp": 2, "dp": 4, "order": "tp-cp-ep-pp-dp"}
    alone = job([[collective()], []], **place, fabric=tree(4, 4))
    both = job([[collective()], [collective()]], **place, fabric=tree(4, 4))
    wide = job([[collective()], [collective()]], **place, fabric=tree(4, 2))
    assert alone.makespan_s == pytest.approx(SIZE / NIC, rel=1e-9)
    assert both.makespan_s == pytest.approx(2 * SIZE / NIC, rel=1e-9)
    assert wide.makespan_s == pytest.approx(SIZE / NIC, rel=1e-9)


def test_rings_apart_do_not_meet() -> None:
    """In the default order each stage's ring has leaves of its own."""
    both = job([[collective()], [collective()]], pp=2, dp=8, fabric=tree(4, 4))
    assert both.makespan_s == pytest.approx(SIZE / NIC, rel=1e-9)


def test_a_send_that_crosses_an_all_gather() -> None:
    """Two messages and one ring leave each leaf of the first stage, over half a NIC's rate: a third each,
    and the whole for the ring once the messages are through.
    """
    size = SIZE / 5
    crossing = [[collective(), message(1, send=True, size=size)], [message(0, send=False, size=size)]]
    record = job(crossing, pp=2, dp=4, fabric=tree(2, 4))
    third = NIC / 2 / 3
    sent_s = size / third
    assert record.times(0, 1)[2] == pytest.approx(sent_s, rel=1e-9)
    assert record.times(0, 0)[2] == pytest.approx(sent_s + (SIZE - sent_s * third) / (NIC / 2), rel=1e-9)


def test_a_pipeline_inside_its_leaf_does_not_meet_the_ring() -> None:
    crossing = [[collective(), message(1, send=True)], [message(0, send=False)]]
    record = job(crossing, pp=2, dp=4, order="tp-cp-ep-pp-dp", fabric=tree(4, 4))
    assert record.makespan_s == pytest.approx(2 * SIZE / NIC, rel=1e-9)  # one NIC for both of them


@pytest.mark.parametrize("ratio", [1, 4, 8])
def test_senders_of_an_incast_share_the_receivers_link(ratio: float) -> None:
    """Three stages send to the first: a third of its NIC for each. Its four ranks share a leaf, whose
    downlink has their NICs' rate over ``ratio``.
    """
    sends = [[message(0, send=True, tag=f"{q}F0")] for q in (1, 2, 3)]
    receives = [message(q, send=False, tag=f"{q}F0") for q in (1, 2, 3)]
    record = job([receives, *sends], pp=4, dp=4, fabric=tree(4, ratio))
    assert record.makespan_s == pytest.approx(3 * ratio * SIZE / NIC, rel=1e-9)


def test_trees_load_the_spine_by_their_edges() -> None:
    """Of four hosts on leaves of two, each tree's edges between leaves, both ways, share the uplink."""
    ring = job([[collective("all_reduce", "ring")]], dp=4, fabric=tree(2, 8))
    tree_ = job([[collective("all_reduce", "tree")]], dp=4, fabric=tree(2, 8))
    # 0-2, 2-1 and 2-3, and mirrored 3-1, 1-2 and 1-0: two edges of each three join the leaves.
    assert ring.makespan_s == pytest.approx(SIZE / (NIC / 4), rel=1e-9)
    assert tree_.makespan_s == pytest.approx(SIZE * 4 * 0.25 / (NIC / 4), rel=1e-9)


# Whole steps -------------------------------------------------------------------------------------------

BIG = {"hidden_size": 4096, "ffn_hidden_size": 16384, "num_attention_heads": 32, "gpu": "H100-SXM5-80GB"}
JOB = {"pp": 2, "dp": 8, "schedule": "1f1b", "gpus_per_node": 1, "interconnect": "ib-ndr400-x8", **BIG}
ALTERNATING = {"order": "tp-cp-ep-pp-dp"}


def step_s(**fields: Any) -> float:
    return simulate(scenario(**{**JOB, **fields})).step_time_s


def test_a_tighter_spine_slows_the_step() -> None:
    times = [step_s(fabric=tree(4, ratio), **ALTERNATING) for ratio in (1, 4, 16)]
    assert times[0] < times[1] < times[2]


def test_a_faster_nic_does_not_help_where_nothing_crosses_hosts() -> None:
    inside = {"tp": 4, "pp": 1, "dp": 1, "gpus_per_node": 8, "schedule": "none"}
    assert step_s(**inside, interconnect="ib-hdr200-x8") == step_s(**inside, interconnect="ib-ndr400-x8")
    assert step_s(interconnect="ib-hdr200-x8") > step_s(interconnect="ib-ndr400-x8")


def test_a_topology_changes_the_step_where_its_links_are_too_few() -> None:
    plenty = step_s(fabric={"kind": "fat-tree"})
    assert step_s(fabric={"kind": "rail-optimized"}) == pytest.approx(plenty, rel=1e-12)
    assert step_s(fabric={"kind": "torus", "oversubscription": 8}) > plenty
    fly = {"kind": "dragonfly", "nodes_per_leaf": 2, "routers_per_group": 2, "global_links": 2}
    assert step_s(fabric=fly) > plenty
    assert step_s(fabric={"kind": "fat-tree", "nodes_per_leaf": 4, "ecmp": "hashed"}) > plenty


def test_a_placement_changes_the_step_where_leaves_are_oversubscribed() -> None:
    scattered = {"kind": "scattered", "seed": 1}
    assert step_s(fabric=tree(4, 8), placement=scattered) > 1.01 * step_s(fabric=tree(4, 8))
    assert step_s(fabric=tree(4, 1), placement=scattered) == step_s(fabric=tree(4, 1))


def test_a_placement_inside_hosts_decides_what_is_near() -> None:
    """Two-GPU groups: together on NVLink, or apart, one to a host."""
    fields = {"tp": 2, "dp": 1, "gpus_per_node": 2}
    apart = {"kind": "explicit", "gpus": [0, 2, 1, 3]}
    assert step_s(**fields, placement=apart) > 1.02 * step_s(**fields)


def test_groups_that_sit_unequally_are_priced_where_they_sit() -> None:
    fields = {"tp": 2, "pp": 1, "dp": 3, "gpus_per_node": 2, "schedule": "none"}
    one_astray = {"kind": "explicit", "gpus": [0, 1, 2, 4, 3, 5]}  # two tp groups of three leave their hosts
    assert step_s(**fields, placement=one_astray) > step_s(**fields)


# Which link bound which axis ---------------------------------------------------------------------------


def bound_by(**fields: Any) -> dict[str, dict[str, float]]:
    """Seconds by axis and link."""
    found: dict[str, dict[str, float]] = {}
    for bound in simulate(scenario(**{**JOB, **fields})).bounds:
        found.setdefault(bound.axis, {})[bound.link] = bound.seconds
    return found


def test_a_run_says_which_link_bound_which_axis() -> None:
    inside = bound_by(tp=2, pp=1, dp=1, gpus_per_node=8, schedule="none")
    assert list(inside["tp"]) == ["nvlink"]
    wide = bound_by(fabric=tree(4, 1), **ALTERNATING)
    assert next(iter(wide["dp"])).startswith("nic")
    tight = bound_by(fabric=tree(4, 16), **ALTERNATING)
    assert next(iter(tight["dp"])).startswith("leaf 0 -> spines")
    assert sum(tight["dp"].values()) > sum(wide["dp"].values())


def test_time_that_a_link_takes_is_all_the_time_that_a_ring_moves() -> None:
    """Two rings share the spine from their first byte to their last."""
    both = job([[collective()], [collective()]], pp=2, dp=4, order="tp-cp-ep-pp-dp", fabric=tree(4, 4))
    rows = bounds(both, [4, 4])
    assert [(row.axis, row.link) for row in rows] == [("dp", "leaf 0 -> spines 0")]
    assert rows[0].seconds == pytest.approx(2 * SIZE / NIC, rel=1e-9)


def test_a_link_that_two_rings_fill_is_full_all_the_time() -> None:
    """And the links of hosts half of it; nothing else carries a byte."""
    step = made([[collective()], [collective()]], pp=2, dp=4, order="tp-cp-ep-pp-dp", fabric=tree(4, 4))
    loads = link_loads(step, replay(folded(step).programs).makespan_s)
    full = {"leaf 0 -> spines 0", "spines 0 -> leaf 0", "leaf 1 -> spines 0", "spines 0 -> leaf 1"}
    assert {name for name, load in loads.items() if load == pytest.approx(1.0)} == full
    ports = [load for name, load in loads.items() if name not in full]
    assert len(ports) == 2 * 8 * 8  # both ways of eight NICs on eight hosts
    assert ports == pytest.approx([0.5] * 128)


@pytest.mark.slow
def test_the_picture_of_a_run_colours_its_links(tmp_path: Path) -> None:
    path = tmp_path / "net.svg"
    fabric = "cluster.fabric={kind: fat-tree, nodes_per_leaf: 2, oversubscription: 8}"
    done = CliRunner().invoke(app, ["run", "llama3-70b-h100", "--set", fabric, "--topology", str(path)])
    assert done.exit_code == 0
    assert "leaf -> spines" in done.stdout
    colours = set(re.findall(r'<line[^>]*stroke="(#[0-9a-f]{6})"', path.read_text()))
    assert len(colours) > 2
