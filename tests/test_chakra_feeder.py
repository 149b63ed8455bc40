"""Our execution traces by the reading rules of Chakra's own tools: feeder, ASTRA-sim's workload, jsonizer."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from oracles.chakra_feeder import COLLECTIVE, COMP, RECV, SEND, TYPES, FedNode, Machine, read
from small_jobs import OWN, SMALL
from wire_format import messages

from stepsim.sim.chakra.files import read_traces
from stepsim.sim.chakra.replay import save_traces
from stepsim.sim.scenario.load import scenario_from_document

pytest.importorskip("google.protobuf")

EXPERTS = {
    "model": SMALL["model"] | {"moe": {"num_experts": 4, "topk": 2, "expert_ffn_hidden_size": 512}},
    "parallelism": {"tp": 2, "pp": 2, "ep": 2, "sequence_parallel": True},
}
JOBS = OWN | {"experts": EXPERTS, "interleaved": {"parallelism": {"tp": 1, "pp": 2, "vpp": 2}}}
NEEDED = {
    COMP: {"is_cpu_op", "num_ops", "tensor_size"},
    COLLECTIVE: {"is_cpu_op", "comm_type", "comm_size", "comm_priority", "pg_name"},
    SEND: {"is_cpu_op", "comm_src", "comm_dst", "comm_size", "comm_tag", "comm_priority"},
    RECV: {"is_cpu_op", "comm_src", "comm_dst", "comm_size", "comm_tag", "comm_priority"},
}
"""By type of node, the attributes that a feeder or ASTRA-sim's workload reads of it."""


@pytest.fixture(scope="module", params=JOBS)
def job(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The traces of every rank of a small job."""
    found = tmp_path_factory.mktemp("traces")
    save_traces(found, scenario_from_document(SMALL | JOBS[request.param], "small"), fold=False)
    return found


def fed(folder: Path) -> dict[int, list[FedNode]]:
    return {rank: read((folder / f"stepsim.{rank}.et").read_bytes()) for rank in range(8)}


@pytest.mark.slow
def test_the_feeder_finds_every_attribute_where_it_looks(job: Path) -> None:
    traces = {one.rank: one.nodes for one in read_traces(job).ranks}
    for rank, nodes in fed(job).items():
        for theirs, ours in zip(nodes, traces[rank], strict=True):
            assert theirs.fed.keys() == NEEDED[theirs.type]
            assert theirs.fed == {name: ours.attributes[name] for name in theirs.fed}
            assert (theirs.id, theirs.type, theirs.micros) == (ours.id, ours.type, ours.duration_micros)
            assert theirs.waits == set(ours.data_deps)
            assert not ours.ctrl_deps
            assert theirs.others.keys() == ours.attributes.keys() - TYPES.keys()


@pytest.mark.slow
def test_ranks_that_run_as_in_astra_sim_come_to_an_end(job: Path) -> None:
    """One kernel and one message at a time, groups by their file: nothing waits for ever."""
    groups: dict[str, list[int]] = json.loads((job / "comm_groups.json").read_bytes())
    machine = Machine(ranks=fed(job), groups=groups)
    assert machine.run() == 0
    assert machine.ended_at.keys() == set(range(8))


@pytest.mark.slow
def test_a_message_that_nobody_sends_never_ends(job: Path) -> None:
    """The judge can say no."""
    ranks = fed(job)
    lost = next((node for node in ranks[0] if node.type in (SEND, COLLECTIVE)), None)
    assert lost is not None
    ranks[0] = [
        FedNode(id=one.id, type=COMP, waits=one.waits, micros=1, fed=ranks[0][0].fed, others={})
        if one is lost
        else one
        for one in ranks[0]
    ]
    groups = json.loads((job / "comm_groups.json").read_bytes())
    assert Machine(ranks=ranks, groups=groups).run() > 0


@pytest.mark.slow
def test_tags_of_a_pair_of_ranks_stay_apart(job: Path) -> None:
    """ASTRA-sim matches messages by their ends and tag; what overtakes must not match another."""
    for nodes in fed(job).values():
        for kind in (SEND, RECV):
            tags = [
                (node.fed["comm_src"], node.fed["comm_dst"], node.fed["comm_tag"])
                for node in nodes
                if node.type == kind
            ]
            assert len(set(tags)) == len(tags)


@pytest.fixture(scope="module")
def schema(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Classes that protoc makes of the schema's text."""
    pytest.importorskip("grpc_tools")
    folder, source = tmp_path_factory.mktemp("schema"), Path(__file__).parent / "chakra.proto"
    described = folder / "chakra.bin"
    protoc = [sys.executable, "-m", "grpc_tools.protoc", f"-I{source.parent}"]
    subprocess.run([*protoc, f"--descriptor_set_out={described}", source.name], check=True)
    from google.protobuf import descriptor_pb2, message_factory

    files = descriptor_pb2.FileDescriptorSet.FromString(described.read_bytes()).file
    return message_factory.GetMessages(list(files))


def test_the_jsonizer_writes_every_node(job: Path, schema: Any) -> None:
    """As Chakra's jsonizer does: message by message, each written as JSON by protobuf."""
    from google.protobuf.json_format import MessageToJson

    traces = read_traces(job)
    for one in traces.ranks:
        head, *rows = messages(Path(one.file).read_bytes())
        metadata = json.loads(MessageToJson(schema["ChakraProtoMsg.GlobalMetadata"].FromString(head)))
        assert metadata["version"] == one.version
        for row, node in zip(rows, one.nodes, strict=True):
            found = json.loads(MessageToJson(schema["ChakraProtoMsg.Node"].FromString(row)))
            assert (int(found["id"]), found["name"]) == (node.id, node.name)
            assert [int(number) for number in found.get("dataDeps", [])] == list(node.data_deps)
            assert {attr["name"] for attr in found["attr"]} == node.attributes.keys()
            assert all(len(attr) == 2 for attr in found["attr"]), "each has one value"
