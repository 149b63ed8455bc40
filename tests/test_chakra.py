"""Chakra's execution traces: ours come back as predicted, any decoder reads them, others' are read."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from small_experts import expert_layouts
from small_jobs import SMALL, command
from small_scenarios import layouts
from wire_format import attribute, fields, messages, packed

from stepsim import simulate
from stepsim.sim.chakra.files import read_traces
from stepsim.sim.chakra.node import NodeType
from stepsim.sim.chakra.pricing import Prices
from stepsim.sim.chakra.replay import replay_traces, save_traces
from stepsim.sim.chakra.schema import PACKAGE
from stepsim.sim.chakra.schema import messages as make_messages
from stepsim.sim.chakra.validate import problems
from stepsim.sim.scenario.load import scenario_from_document
from stepsim.sim.scenario.models import Scenario

pytest.importorskip("google.protobuf")


def small(**changes: Any) -> Scenario:
    return scenario_from_document(SMALL | changes, "small")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The traces of every rank of a small job."""
    found = tmp_path_factory.mktemp("traces")
    save_traces(found, small(), fold=False)
    return found


@pytest.mark.slow
@settings(max_examples=10)
@given(layouts())
def test_ours_replay_to_the_step_that_was_predicted(scenario: Scenario) -> None:
    with tempfile.TemporaryDirectory() as name:
        save_traces(Path(name), scenario)
        assert not problems(read_traces(Path(name)))
        again = replay_traces(Path(name))
    assert again.step_time_s == pytest.approx(simulate(scenario).step_time_s, rel=1e-6)


@pytest.mark.slow
@settings(max_examples=4)
@given(expert_layouts())
def test_experts_replay_to_the_step_that_was_predicted(scenario: Scenario) -> None:
    with tempfile.TemporaryDirectory() as name:
        save_traces(Path(name), scenario)
        again = replay_traces(Path(name))
    assert again.step_time_s == pytest.approx(simulate(scenario).step_time_s, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"parallelism": {"tp": 1, "pp": 4}, "schedule": "zb-h1", "software": "torchtitan-2024"},
        {"parallelism": {"tp": 1, "pp": 1, "cp": 4}},
        {"parallelism": {"tp": 1, "pp": 1}, "software": "torchtitan-2024"},
    ],
)
def test_every_rank_by_itself_replays_to_the_same_step(changes: dict[str, Any], tmp_path: Path) -> None:
    scenario = small(**changes)
    save_traces(tmp_path, scenario, fold=False)
    again = replay_traces(tmp_path)
    assert len(again.ranks) == 8
    assert again.step_time_s == pytest.approx(simulate(scenario).step_time_s, rel=1e-6)


@pytest.mark.slow
def test_commands_write_and_replay(tmp_path: Path) -> None:
    job, traces = tmp_path / "job.yaml", tmp_path / "traces"
    job.write_text(yaml.safe_dump(SMALL))
    wrote = json.loads(command("run", job, "--chakra", traces, "--json").partition("\nexecution traces")[0])
    read = json.loads(command("replay", traces, "--json"))
    assert read["step_time_s"] == pytest.approx(wrote["step_time_s"], rel=1e-6)
    priced = json.loads(command("replay", traces, "--cluster", job, "--json"))
    assert priced["step_time_s"] == pytest.approx(wrote["step_time_s"], rel=1e-6)
    assert "--cluster" in command("replay", traces, "--kernels", "flops", code=2)
    assert "--chakra" in command("run", job, "--chakra", traces, "--fault", "gpu_throttle gpu/1", code=2)


def test_ours_priced_on_their_own_cluster_are_the_step_that_was_predicted(tmp_path: Path) -> None:
    """With what each part of it takes, and what kernels lose beside communication."""
    scenario = small()
    save_traces(tmp_path, scenario)
    predicted, priced = simulate(scenario), replay_traces(tmp_path, cluster=scenario)
    assert priced.step_time_s == pytest.approx(predicted.step_time_s, rel=1e-9)
    told = {one.name: one.seconds for one in predicted.critical_path}
    assert {one.name: one.seconds for one in priced.critical_path} == pytest.approx(told, rel=1e-6)
    assert "host" in told  # which this job waits for


@pytest.mark.slow
def test_a_slower_network_slows_a_replay(tmp_path: Path) -> None:
    """Of a job whose hosts keep ahead, which the network is nothing beside otherwise."""
    software = {"preset": SMALL["software"], "host": {"host_s_per_kernel": 1e-6}}
    save_traces(tmp_path, small(software=software), fold=False)
    slower = small(software=software, cluster=SMALL["cluster"] | {"interconnect": "roce-100-x1"})
    assert replay_traces(tmp_path, cluster=slower).step_time_s > 1.02 * replay_traces(tmp_path).step_time_s


# Files ---------------------------------------------------------------------------------------------


def test_nodes_decode_by_hand(folder: Path) -> None:
    """Numbers of fields and types of attributes are those of the schema; the reader sees the same."""
    traces = read_traces(folder)
    for one in traces.ranks:
        _, *rows = messages(Path(one.file).read_bytes())
        assert len(rows) == len(one.nodes)
        for row, node in zip(rows, one.nodes, strict=True):
            found: dict[int, Any] = {}
            attributes = {}
            for number, value in fields(row):
                if number == 10:
                    assert isinstance(value, bytes)
                    name, kind, what = attribute(value)
                    attributes[name] = kind, what
                else:
                    found[number] = value
            assert (found[1], found[2].decode(), found[3]) == (node.id, node.name, node.type)
            assert packed(found.get(5, b"")) == list(node.data_deps)
            assert found.get(7, 0) == node.duration_micros
            assert attributes["is_cpu_op"] == ("bool", int(node.on_host))
            types = {name: kind for name, (kind, _) in attributes.items()}
            if node.type == NodeType.COMP:
                assert (types["num_ops"], types["tensor_size"]) == ("int64", "uint64")
            elif node.type == NodeType.COMM_COLL:
                assert (types["comm_type"], types["comm_size"], types["pg_name"]) == (
                    "int64",
                    "int64",
                    "string",
                )
                assert int(node.text("pg_name")) > 0
            else:
                assert [types[n] for n in ("comm_src", "comm_dst", "comm_tag")] == ["int32"] * 3


def test_another_decoder_reads_the_nodes(folder: Path) -> None:
    """``protoc --decode`` with the schema as text."""
    pytest.importorskip("grpc_tools")
    schema = Path(__file__).parent / "chakra.proto"
    traces = read_traces(folder)
    row = list(messages(Path(traces.ranks[0].file).read_bytes()))[-1]
    protoc = [
        sys.executable,
        "-m",
        "grpc_tools.protoc",
        f"-I{schema.parent}",
        f"--decode={PACKAGE}.Node",
        schema.name,
    ]
    decoded = subprocess.run(protoc, input=row, capture_output=True, check=True).stdout.decode()
    last = traces.ranks[0].nodes[-1]
    assert f"id: {last.id}\n" in decoded
    assert f'name: "{last.name}"' in decoded
    assert [int(line.split()[1]) for line in decoded.splitlines() if line.startswith("data_deps")] == list(
        last.data_deps
    )
    assert "int64_val:" in decoded


def test_traces_hold_what_a_feeder_needs(folder: Path) -> None:
    """Nodes wait for earlier ones alone, the host's calls for one another; groups list their ranks."""
    traces = read_traces(folder)
    assert [one.rank for one in traces.ranks] == list(range(8))
    for one in traces.ranks:
        seen: set[int] = set()
        for node in one.nodes:
            assert seen.issuperset(node.data_deps)
            seen.add(node.id)
            if node.type == NodeType.COMM_COLL:
                assert one.rank in traces.groups[node.text("pg_name")]
        alone = [node for node in one.nodes if not node.data_deps]
        assert len(alone) == 1


def test_bytes_are_those_of_the_step(folder: Path) -> None:
    """What nodes send and compute is what the spans of the same step do."""
    spans = list(simulate(small(), fold=False).iter_spans())
    nodes = read_traces(folder).ranks[0].nodes
    own = [span for span in spans if span.rank == 0]
    flops = sum(node.number("num_ops") for node in nodes)
    assert flops == pytest.approx(sum(span.flops for span in own), rel=1e-6)
    sent = [node for node in nodes if node.type != NodeType.COMP]
    messages_bytes = sum(node.number("payload_bytes") for node in sent)
    messages = [span for span in own if span.stream != "compute" and (span.category == "pp" or span.group)]
    assert messages_bytes == pytest.approx(sum(span.bytes for span in messages), rel=1e-6)


@pytest.mark.slow
def test_traces_of_others_are_read(shared: Path) -> None:
    place = shared / "data" / "traces" / "chakra"
    if not place.is_dir():
        pytest.skip(f"no traces of others at {place}")
    path = place / "chakra__tests__data__feeder_tests_trace.tar.gz"
    (one,) = read_traces(path).ranks
    kinds = Counter(node.type for node in one.nodes)
    assert kinds == {NodeType.COMP: 3643, NodeType.COMM_COLL: 21}
    assert not problems(read_traces(path))
    # One stream computes; its kernels alone are a lower bound, all nodes one after the other an upper one.
    kernels = sum(node.duration_s for node in one.nodes if not node.on_host and node.text("tid") == "7")
    step_s = replay_traces(path).step_time_s
    assert kernels <= step_s <= sum(node.duration_s for node in one.nodes)


def test_traces_of_the_host_are_read(shared: Path) -> None:
    """Ten all-gathers of one number a rank, of two ranks; all else takes no time that the trace tells."""
    path = shared / "data" / "traces" / "chakra" / "chakra__tests__data__1.0.2-chakra.0.0.4.tgz"
    if not path.is_file():
        pytest.skip(f"no traces of others at {path.parent}")
    traces = read_traces(path)
    (one,) = traces.ranks
    gathers = [node for node in one.nodes if node.type == NodeType.COMM_COLL]
    assert len(one.nodes) == 263
    assert [node.whole("comm_size") for node in gathers] == [4] * 10
    assert {node.whole("comm_type") for node in gathers} == {2}
    assert traces.groups == {"0": (0, 1)}
    assert not problems(traces)
    with pytest.raises(ValueError, match="--cluster"):
        replay_traces(path)
    cluster = small()
    alone_s = Prices(scenario=cluster).collective("all_gather", 4.0, (0, 1)).solo_s
    assert replay_traces(path, cluster=cluster).step_time_s == pytest.approx(10 * alone_s, rel=1e-6)


def test_without_protobuf_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    with pytest.raises(ValueError, match="chakra"):
        make_messages.__wrapped__()


def test_files_that_are_none_are_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "cut.0.et").write_bytes((folder / "stepsim.0.et").read_bytes()[:-3])
    assert "cut.0.et" in command("replay", tmp_path / "cut.0.et", code=2)
    (tmp_path / "noise.1.et").write_bytes(bytes(range(256)) * 4)
    assert "noise.1.et" in command("replay", tmp_path / "noise.1.et", code=2)
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "empty" in command("replay", empty, code=2)
    for name in ("a.0.et", "b.0.et"):
        (empty / name).write_bytes((folder / "stepsim.0.et").read_bytes())
    assert "rank 0" in command("replay", empty, code=2)
