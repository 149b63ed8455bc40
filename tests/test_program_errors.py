"""Broken programs: each is refused and the reason told, by the replay and by the command."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_programs import two_stages, written
from typer.testing import CliRunner

from stepsim.cli.main import app
from stepsim.sim.program.check import BrokenProgram
from stepsim.sim.replay import replay_program


def _drop(r: int, index: int) -> Callable[[Any], None]:
    def change(document: Any) -> None:
        del document["classes"][r]["ops"][index]

    return change


def _set(*keys: str | int, value: Any) -> Callable[[Any], None]:
    def change(document: Any) -> None:
        for key in keys[:-1]:
            document = document[key]
        document[keys[-1]] = copy.deepcopy(value)

    return change


OTHER_SUM = {"latency_s": 0.002, "bytes": 16.0, "ceiling_bytes_per_s": 1e6}
SEND = {"name": "p2p", "stream": "pp", "messages": [{"send": "1F0", "to": 1, "transfer": "activation"}]}


def _other_payload(document: Any) -> None:
    document["transfers"]["other"] = OTHER_SUM
    document["classes"][1]["ops"][2]["transfer"] = "other"


def _second_receive(document: Any) -> None:
    document["classes"][1]["ops"].insert(1, document["classes"][1]["ops"][0])


def _other_transfer(document: Any) -> None:
    document["transfers"]["other"] = OTHER_SUM
    document["classes"][1]["ops"][0]["messages"][0]["transfer"] = "other"


def _two_streams(document: Any) -> None:
    for one in document["classes"]:
        one["ops"].append({**one["ops"][2], "stream": "elsewhere"})


def _crossed(document: Any) -> None:
    """Class 0 sums before it sends, class 1 receives before it sums."""
    ops = document["classes"][0]["ops"]
    ops[1], ops[2] = ops[2], ops[1]


BROKEN = {
    "collective not reached by all": (
        _drop(1, 2),
        "class 0 calls it 1 times and class 1 0 times; class 0, op 2 (norm) would wait for ever",
    ),
    "another kind": (
        _set("classes", 1, "ops", 2, "collective", value="all_gather"),
        "communicator 'world', call 0: class 0, op 2 (norm) is all_reduce of 8 bytes",
    ),
    "another payload": (_other_payload, "but class 1, op 2 (norm) is all_reduce of 16 bytes"),
    "called by a stranger": (
        _set("communicators", "world", value=[0]),
        "class 1, op 2 (norm): is not a member of communicator 'world' (members 0)",
    ),
    "member that is no class": (
        _set("communicators", "world", value=[0, 7]),
        "communicator 'world': names class 7; classes are 0 to 1",
    ),
    "member twice": (
        _set("communicators", "world", value=[0, 1, 1]),
        "communicator 'world': joins a class twice (members 0, 1, 1)",
    ),
    "order left to time": (_two_streams, "calls communicator 'world' on streams elsewhere, world"),
    "send without receive": (
        _set("classes", 1, "ops", 0, "messages", value=[]),
        "class 0, op 1 (p2p): sends 0F0 to class 1, which never receives it from class 0",
    ),
    "receive without send": (
        _set("classes", 0, "ops", 1, "messages", value=[]),
        "class 1, op 0 (p2p): receives 0F0 from class 0, which never sends it to class 1",
    ),
    "other tag": (
        _set("classes", 1, "ops", 0, "messages", 0, "receive", value="0F1"),
        "class 1, op 0 (p2p): receives 0F1 from class 0, which never sends it",
    ),
    "received twice": (
        _second_receive,
        "message 0F0 from class 0 to class 1: received 2 times: class 1, op 0 (p2p); class 1, op 1 (p2p)",
    ),
    "ends that differ": (
        _other_transfer,
        "sends 0F0 with another transfer than class 1, op 0 (p2p) receives",
    ),
    "message to itself": (
        _set("classes", 0, "ops", 1, "messages", 0, "to", value=0),
        "class 0, op 1 (p2p): messages: send 0F0: a class cannot send to itself",
    ),
    "message to nobody": (
        _set("classes", 0, "ops", 1, "messages", 0, "to", value=5),
        "send 0F0: there is no class 5; classes are 0 to 1",
    ),
    "unknown link": (
        _set("transfers", "activation", "weights", value={"pcie": 1.0}),
        "transfer: weights: link 'pcie' is not known; known: nvlink.out, nvlink.in, nic.out, nic.in",
    ),
    "link that the class lacks": (
        _set("transfers", "activation", "weights", value={"nic": 1.0}),
        "class 0, op 1 (p2p): transfer: weights: this class has no link nic.out",
    ),
    "link without a rate": (_set("links", 0, "nvlink.in", value=0), "links: nvlink.in: expected bytes per"),
    "negative time": (
        _set("kernels", "matmul", "seconds", value=-0.5),
        "op 0 (forward 0F0): block 'layer', op 0 (matmul): kernel: seconds: expected 0 or more, got -0.5",
    ),
    "negative payload": (
        _set("transfers", "sum", "bytes", value=-8.0),
        "transfer: bytes: expected 0 or more",
    ),
    "no progress": (
        _set("transfers", "sum", "ceiling_bytes_per_s", value=0.0),
        "transfer: ceiling_bytes_per_s: expected above 0, got 0.0",
    ),
    "unknown kind of kernel": (
        _set("kernels", "matmul", "kind", value="conv"),
        "kernel: kind: 'conv' is not known; known: gemm, attention, memory-bound, fixed",
    ),
    "unknown category": (
        _set("classes", 0, "ops", 2, "category", value="ddp"),
        "class 0, op 2 (norm): category: 'ddp' is not known; known: compute, optimizer, tp, cp, ep, pp, dp",
    ),
    "no action": (
        _set("classes", 0, "ops", 0, "action", value="forward"),
        "class 0, op 0 (forward forward): action: not an action: 'forward'",
    ),
    "block never run": (
        _set("classes", 0, "ops", 0, "blocks", value=[["layer", 0]]),
        "blocks: 'layer': expected to run once or more, got 0",
    ),
    "block of several ranks": (
        _set("blocks", "layer", 1, "communicator", value="world"),
        "communicator 'world': blocks of class 1 call it in other places than those of class 0",
    ),
    "host waits in a block": (
        _set("blocks", "layer", 1, "host_sync", value=True),
        "cannot wait inside a block",
    ),
    "no SM left": (
        _set("transfers", "sum", "sms", value=101),
        "class 0: a collective holds 101 SMs, and there are 100 in all",
    ),
    "more than all of HBM": (
        _set("transfers", "sum", "hbm", value=1001),
        "transfer: hbm: expected thousandths of the bandwidth, at most 1000, got 1001",
    ),
    "nothing to do": (_set("classes", value=[]), "no class has an op"),
    "no time passes": (
        lambda document: document.update(
            classes=[{"ops": [{"name": "none", "blocks": []}]}], communicators={}
        ),
        "the program takes no time at all",
    ),
    "deadlock": (
        _crossed,
        (
            "deadlock: class 0, op 1 (norm): all_reduce of 'world', "
            "which waits for class 1, op 2 (norm): all_reduce of 'world', "
            "which waits for class 1, op 0 (p2p): receive 0F0 from class 0, "
            "which waits for class 0, op 2 (p2p): send 0F0 to class 1, "
            "which waits for class 0, op 1 (norm): all_reduce of 'world'"
        ),
    ),
}


@pytest.mark.parametrize("case", BROKEN.values(), ids=BROKEN)
def test_a_broken_program_is_refused_and_the_reason_told(case: Any, tmp_path: Path) -> None:
    breaks, says = case
    document = two_stages()
    breaks(document)
    with pytest.raises(BrokenProgram) as caught:
        replay_program(written(document, tmp_path))
    assert says in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path / "program.json"))


def test_all_problems_are_listed_up_to_a_readable_number(tmp_path: Path) -> None:
    document = two_stages()
    document["classes"][0]["ops"] += [{**SEND, "messages": [_message(k)]} for k in range(50)]
    with pytest.raises(BrokenProgram) as caught:
        replay_program(written(document, tmp_path))
    assert len(caught.value.problems) == 50
    assert str(caught.value).endswith("and 30 more")


def _message(k: int) -> dict[str, Any]:
    return {"send": f"0F{k + 1}", "to": 1, "transfer": "activation"}


def test_a_broken_program_and_a_malformed_one_end_differently(tmp_path: Path) -> None:
    """1: the answer is that it does not run. 2: there is no answer."""
    document = two_stages()
    _crossed(document)
    broken = CliRunner().invoke(app, ["replay", str(written(document, tmp_path))])
    assert (broken.exit_code, broken.stdout) == (1, "")
    assert "deadlock" in broken.stderr
    del document["classes"][1]["ops"][0]["name"]
    malformed = CliRunner().invoke(app, ["replay", str(written(document, tmp_path))])
    assert (malformed.exit_code, malformed.stdout) == (2, "")
    assert "class 1, op 0: name is missing" in malformed.stderr


@pytest.mark.slow
@given(data=st.data())
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_one_number_becomes_the_program_runs_or_is_refused(
    data: st.DataObject, tmp_path: Path
) -> None:
    document: Any = two_stages()
    spots = list(_numbers(document))
    spot, key = data.draw(st.sampled_from(spots))
    spot[key] = data.draw(st.sampled_from([-1, 0, 1, 2, 3, -0.5, 0.0, 1e-9, 1e9, "x"]))
    path = written(document, tmp_path)
    told = str(path)
    try:
        assert replay_program(path).step_time_s > 0
    except ValueError as mistake:
        told = str(mistake)
    assert str(path) in told


def _numbers(spot: Any) -> Any:
    for key in spot if isinstance(spot, dict) else range(len(spot)):
        if isinstance(spot[key], dict | list):
            yield from _numbers(spot[key])
        elif isinstance(spot[key], int | float):
            yield spot, key
