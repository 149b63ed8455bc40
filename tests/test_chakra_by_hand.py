"""Chakra's execution traces written by hand: what they cost on a cluster, and what is wrong with them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from small_jobs import SMALL, command

from stepsim.cli.replay import BROKEN
from stepsim.sim.chakra.files import write_traces
from stepsim.sim.chakra.node import ExecutionTrace, NodeType, TraceNode, TraceSet
from stepsim.sim.chakra.pricing import Prices
from stepsim.sim.chakra.replay import replay_traces
from stepsim.sim.chakra.validate import in_order, problems
from stepsim.sim.program.check import BrokenProgram
from stepsim.sim.scenario.load import scenario_from_document
from stepsim.sim.scenario.models import Scenario

pytest.importorskip("google.protobuf")


def small(**changes: Any) -> Scenario:
    return scenario_from_document(SMALL | changes, "small")


def coll(number: int, after: tuple[int, ...] = (), size: int = 1 << 20, **more: Any) -> TraceNode:
    """An all-reduce of a MiB."""
    attributes: dict[str, Any] = {
        "is_cpu_op": False,
        "comm_type": 0,
        "comm_size": size,
        "pg_name": "0",
    } | more
    return TraceNode(id=number, name="sum", type=NodeType.COMM_COLL, data_deps=after, attributes=attributes)


def comp(number: int, micros: int, after: tuple[int, ...] = (), **more: Any) -> TraceNode:
    return TraceNode(
        id=number,
        name="kernel",
        type=NodeType.COMP,
        data_deps=after,
        duration_micros=micros,
        attributes={"is_cpu_op": False} | more,
    )


def message(number: int, kind: NodeType, source: int, target: int, **more: Any) -> TraceNode:
    attributes: dict[str, Any] = {
        "comm_src": source,
        "comm_dst": target,
        "comm_tag": 7,
        "comm_size": 4096,
    } | more
    return TraceNode(id=number, name="message", type=kind, duration_micros=5, attributes=attributes)


def traced(*ranks: tuple[TraceNode, ...]) -> TraceSet:
    groups = {"0": tuple(range(len(ranks)))}
    found = tuple(ExecutionTrace(file=f"t.{r}.et", rank=r, nodes=nodes) for r, nodes in enumerate(ranks))
    return TraceSet(source="t", ranks=found, groups=groups)


def stored(traces: TraceSet, folder: Path) -> Path:
    groups = orjson.dumps({name: list(ranks) for name, ranks in traces.groups.items()})
    for path in write_traces(traces, folder, "t", b"{}", groups):
        if path.name == "machine.json":
            path.unlink()
    return folder


def test_collectives_wait_for_the_last_rank_and_cost_what_the_cluster_says(tmp_path: Path) -> None:
    """Kernels of 30 and 50 us, an all-reduce of 1 MiB, a kernel of 10 us behind it."""
    ranks = tuple((comp(1, micros), coll(2, (1,)), comp(3, 10, (2,))) for micros in (30, 50))
    place = stored(traced(*ranks), tmp_path)
    cluster = small()
    priced_s = Prices(scenario=cluster).collective("all_reduce", float(1 << 20), (0, 1)).solo_s
    found = replay_traces(place, cluster=cluster)
    assert found.step_time_s == pytest.approx(60e-6 + priced_s, rel=1e-9)
    assert 5e-6 < priced_s < 1e-4


def test_kernels_by_their_flops(tmp_path: Path) -> None:
    cluster = small()
    peak = Prices(scenario=cluster).cluster.gpu.peak_flops["bf16"]
    nodes = (comp(1, 30, num_ops=int(peak / 1000)), comp(2, 20, (1,)))
    place = stored(traced(nodes), tmp_path)
    assert replay_traces(place).step_time_s == pytest.approx(50e-6)
    found = replay_traces(place, cluster=cluster, rule="flops")
    assert found.step_time_s == pytest.approx(1e-3 + 20e-6, rel=1e-6)


def test_messages_move_between_ranks(tmp_path: Path) -> None:
    send, receive = NodeType.COMM_SEND, NodeType.COMM_RECV
    one = (comp(1, 30), replace(message(2, send, 0, 1), data_deps=(1,)))
    two = (message(1, receive, 0, 1), comp(2, 10, (1,)))
    assert replay_traces(stored(traced(one, two), tmp_path)).step_time_s == pytest.approx(45e-6)


@pytest.mark.parametrize("kind", [NodeType.MEM_LOAD, 8, 10])
def test_nodes_of_other_kinds_take_their_time(kind: int, tmp_path: Path) -> None:
    """Of memory, and those that newer schemas have: storage (8), checkpoints (10)."""
    place = stored(traced((comp(1, 30), replace(comp(2, 20, (1,)), type=kind))), tmp_path)
    assert replay_traces(place).step_time_s == pytest.approx(50e-6)


def test_nothing_to_price_by_is_refused(tmp_path: Path) -> None:
    place = stored(traced((comp(1, 5), coll(2, (1,))), (comp(1, 5), coll(2, (1,)))), tmp_path)
    with pytest.raises(ValueError, match="--cluster"):
        replay_traces(place)
    far = replace(traced((coll(1),)), groups={"0": (0, 99)})
    (tmp_path / "far").mkdir()
    with pytest.raises(ValueError, match="99"):
        replay_traces(stored(far, tmp_path / "far"), cluster=small())


BROKEN_TRACES = {
    "missing": (traced((comp(1, 5), comp(2, 5, (9,)))), "node 9"),
    "twice": (traced((comp(1, 5), comp(1, 5))), "node 1 "),
    "circle": (traced((comp(1, 5, (2,)), comp(2, 5, (1,)))), "circle"),
    "no receive": (traced((message(1, NodeType.COMM_SEND, 0, 1),), (comp(1, 5),)), "receive"),
    "other size": (
        traced(
            (message(1, NodeType.COMM_SEND, 0, 1),),
            (message(1, NodeType.COMM_RECV, 0, 1, comm_size=1),),
        ),
        "4,096",
    ),
    "absent": (traced((coll(1),), (comp(1, 5),)), "group 0"),
    "order": (
        traced((coll(1), coll(2, (1,), comm_type=2)), (coll(1, comm_type=2), coll(2, (1,)))),
        "all_gather",
    ),
    "stranger": (replace(traced((coll(1),), (coll(1),)), groups={"0": (0,)}), "rank 1"),
    "no kind": (traced((coll(1, comm_type=77),)), "77"),
    "no size": (traced((coll(1, comm_size=-1),)), "comm_size"),
}


@pytest.mark.parametrize("name", BROKEN_TRACES)
def test_what_is_wrong_is_named(name: str) -> None:
    traces, what = BROKEN_TRACES[name]
    found = problems(traces)
    assert any(what in problem for problem in found), found


def test_a_deadlock_of_ranks_is_found(tmp_path: Path) -> None:
    """Each rank's kernel waits for a message that the other sends behind its own."""
    send, receive = NodeType.COMM_SEND, NodeType.COMM_RECV
    ranks = tuple(
        (
            message(1, receive, 1 - r, r, comm_tag=1 - r),
            replace(message(2, send, r, 1 - r, comm_tag=r), data_deps=(1,)),
        )
        for r in (0, 1)
    )
    with pytest.raises(BrokenProgram):
        replay_traces(stored(traced(*ranks), tmp_path))
    assert command("replay", tmp_path, code=BROKEN)


def test_order_follows_dependencies_then_time() -> None:
    nodes = [replace(comp(1, 1, (3,)), start_micros=0), replace(comp(2, 1), start_micros=9), comp(3, 1)]
    assert [node.id for node in in_order(nodes)] == [3, 1, 2]
