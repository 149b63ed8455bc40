"""Programs as files: the same bytes again, no half files, and every mistake told with its place."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_programs import two_stages, written
from small_scenarios import layouts, lowered

from stepsim.sim.network.transfer import Transfer
from stepsim.sim.program.file import SavedProgram, read_program, write_program
from stepsim.sim.program.program import Block, Collective, Compute, Op, Program, Programs, RepeatedBlocks
from stepsim.sim.replay import save_program
from stepsim.sim.scenario.load import load_scenario
from stepsim.sim.scenario.models import Scenario

AMOUNTS = st.floats(min_value=0, allow_nan=False, allow_infinity=False)


def rewritten(saved: SavedProgram, path: Path) -> bytes:
    write_program(saved.programs, path, ranks=saved.ranks, scenario=saved.scenario)
    return path.read_bytes()


@given(scenario=layouts())
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_file_read_and_written_again_is_the_same_file(scenario: Scenario, tmp_path: Path) -> None:
    path = tmp_path / "program.json"
    save_program(path, scenario)
    first = path.read_bytes()
    saved = read_program(path)
    assert rewritten(saved, tmp_path / "again.json") == first
    assert rewritten(saved, tmp_path / "again.json.gz")[:2] == b"\x1f\x8b"
    assert rewritten(read_program(tmp_path / "again.json.gz"), tmp_path / "again.json") == first


@given(scenario=layouts())
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_file_holds_all_that_was_lowered(scenario: Scenario, tmp_path: Path) -> None:
    save_program(tmp_path / "program.json", scenario)
    read = read_program(tmp_path / "program.json").programs
    wrote = lowered(scenario).programs
    assert expanded(read) == expanded(wrote)
    assert (read.communicators, read.links) == (wrote.communicators, wrote.links)
    assert (read.sms, read.corun_slowdown) == (wrote.sms, wrote.corun_slowdown)


def expanded(programs: Programs) -> list[list[Any]]:
    """Blocks are equal by identity only: here by name and ops."""

    def plain(op: Op) -> Any:
        if isinstance(op.work, RepeatedBlocks):
            return op.name, op.after, op.action, op.host_s, [(b.name, b.ops, n) for b, n in op.work.blocks]
        return op

    return [[plain(op) for op in program.ops] for program in programs.classes]


@given(seconds=AMOUNTS, moved=AMOUNTS, ceiling=st.floats(min_value=1e-300, allow_nan=False), host_s=AMOUNTS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_floats_come_back_to_the_bit(
    seconds: float, moved: float, ceiling: float, host_s: float, tmp_path: Path
) -> None:
    transfer = Transfer(seconds, moved, ceiling, (("nic", 0.1 + 0.2),), 3)
    kernel = Compute(seconds, "gemm", moved, host_s, static_schedule=True)
    ops = (
        Op("a", "compute", "compute", kernel, host_s=host_s),
        Op("b", "dp", "dp", Collective("all_reduce", "dp", transfer), (0,)),
    )
    programs = Programs(
        classes=(Program(ops=ops),),
        communicators={},
        links=({"nic.out": ceiling if math.isfinite(ceiling) else 1.0},),
        sms=4,
        corun_slowdown=host_s,
    )
    write_program(programs, tmp_path / "program.json")
    assert read_program(tmp_path / "program.json").programs == programs


def test_blocks_of_one_name_stay_apart(tmp_path: Path) -> None:
    """Also where the name that would tell them apart is taken."""
    blocks = [
        Block(name, (Op("k", "compute", "compute", Compute(float(i), "gemm")),))
        for i, name in enumerate(("layer", "layer", "layer 2"))
    ]
    op = Op("forward", "compute", "compute", RepeatedBlocks(tuple((block, 1) for block in blocks)))
    programs = Programs(
        classes=(Program(ops=(op,)),), communicators={}, links=({},), sms=1, corun_slowdown=0.0
    )
    write_program(programs, tmp_path / "program.json")
    saved = read_program(tmp_path / "program.json")
    work = saved.programs.classes[0].ops[0].work
    assert isinstance(work, RepeatedBlocks)
    assert [block.ops for block, _ in work.blocks] == [block.ops for block in blocks]
    assert rewritten(saved, tmp_path / "again.json") == (tmp_path / "program.json").read_bytes()


@pytest.mark.parametrize("spelling", ["alltoall", "all-to-all", "AllToAll"])
def test_a_collective_goes_by_any_spelling(spelling: str, tmp_path: Path) -> None:
    """Files of earlier versions say alltoall."""
    op = Op("dispatch", "ep", "ep", Collective("all_to_all", "ep", Transfer(1e-6, 1e6, 1e9)))
    programs = Programs(
        classes=(Program(ops=(op,)),), communicators={}, links=({},), sms=1, corun_slowdown=0.0
    )
    path = tmp_path / "program.json"
    write_program(programs, path)
    text = path.read_text()
    assert text.count('"collective": "all_to_all"') + text.count('"collective":"all_to_all"') == 1
    path.write_text(text.replace('"all_to_all"', f'"{spelling}"'))
    assert read_program(path).programs == programs


def test_ops_that_are_the_same_are_lines_that_are_the_same(tmp_path: Path) -> None:
    """Waits count back from the op, so that an op more changes one line."""

    def lines(ops: list[Op]) -> list[str]:
        programs = Programs(
            classes=(Program(ops=tuple(ops)),), communicators={}, links=({},), sms=1, corun_slowdown=0.0
        )
        write_program(programs, tmp_path / "program.json")
        return (tmp_path / "program.json").read_text().splitlines()

    def kernels(first: int, count: int) -> list[Op]:
        work = Compute(1.0, "gemm")
        return [
            Op("k", "compute", "compute", work, (i - 1,) if i else ()) for i in range(first, first + count)
        ]

    assert len(set(lines(kernels(0, 9)))) == len(set(lines(kernels(0, 5))))


def test_the_largest_shipped_program_is_a_few_megabytes(tmp_path: Path) -> None:
    save_program(tmp_path / "program.json", load_scenario("llama3.1-405b-16k"))
    assert (tmp_path / "program.json").stat().st_size < 10e6


def test_what_says_nothing_may_be_left_out(tmp_path: Path) -> None:
    kernel = {"seconds": 1.0, "kind": "gemm"}
    document = {
        "format": "stepsim-program",
        "version": 1,
        "sms": 1,
        "kernels": {"k": kernel},
        "classes": [{"ops": [{"name": "k", "kernel": "k"}]}],
    }
    saved = read_program(written(document, tmp_path))
    assert saved.programs.classes[0].ops == (Op("k", "compute", "compute", Compute(1.0, "gemm")),)
    assert (saved.ranks[0].count, saved.scenario) == (1, None)


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(two_stages(), tmp_path)
    before, saved = path.read_bytes(), read_program(path)

    def full_disk(self: Path, data: bytes) -> int:
        with self.open("wb") as file:
            file.write(data[: len(data) // 2])
        raise OSError("no space left on device")

    monkeypatch.setattr(Path, "write_bytes", full_disk)
    with pytest.raises(ValueError, match="no space"):
        rewritten(saved, path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def at(*keys: str | int) -> Callable[[Any], Any]:
    """The object inside a document that ``keys`` lead to."""

    def found(document: Any) -> Any:
        for key in keys:
            document = document[key]
        return document

    return found


MALFORMED = {
    "other format": (at(), {"format": "onnx"}, 'expected an object with "format": "stepsim-program"'),
    "newer": (at(), {"version": 2}, "version: expected 1, got 2"),
    "unknown field": (at(), {"sm": 3}, "no field is called 'sm'. Did you mean sms?"),
    "no SM": (at(), {"sms": 0}, "sms: expected a whole number of at least 1, got 0"),
    "text for a number": (
        at("kernels", "matmul"),
        {"seconds": "1 s"},
        "kernel 'matmul': seconds: expected a number, got '1 s'",
    ),
    "true for a number": (
        at("transfers", "sum"),
        {"bytes": True},
        "transfer 'sum': bytes: expected a number",
    ),
    "missing": (at("kernels"), {"matmul": {"kind": "gemm"}}, "kernel 'matmul': seconds is missing"),
    "unknown kernel": (
        at("classes", 1, "ops", 1),
        {"kernel": "matmull"},
        "class 1, op 1: kernel: no kernel is called 'matmull'. Did you mean matmul?",
    ),
    "unknown transfer": (
        at("classes", 0, "ops", 2),
        {"transfer": "summ"},
        "class 0, op 2: transfer: no transfer is called 'summ'",
    ),
    "unknown block": (
        at("classes", 0, "ops", 0),
        {"blocks": [["layers", 2]]},
        "class 0, op 0: blocks: no block is called 'layers'. Did you mean layer?",
    ),
    "block of blocks": (
        at("blocks", "layer"),
        [{"name": "again", "blocks": [["layer", 1]]}],
        "block 'layer', op 0: expected one of kernel, collective, got blocks",
    ),
    "forward wait": (
        at("classes", 1, "ops", 1),
        {"after": [1]},
        "class 1, op 1: after: expected numbers from -1 (the op before this one) to -1, got [1]",
    ),
    "wait before the start": (at("classes", 1, "ops", 1), {"after": [-2]}, "class 1, op 1: after"),
    "two works": (
        at("classes", 1, "ops", 1),
        {"blocks": []},
        "class 1, op 1: expected one of kernel, collective, messages, blocks, got kernel and blocks",
    ),
    "no such links": (at("classes", 1), {"links": 4}, "class 1: links: expected one of the 1 entries"),
    "message to no one": (
        at("classes", 0, "ops", 1),
        {"messages": [{"send": "0F0", "transfer": "activation"}]},
        "class 0, op 1, messages: to is missing",
    ),
    "count": (at("classes", 0), {"count": 0}, "class 0: count: expected a whole number of at least 1"),
}


@pytest.mark.parametrize("case", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_program_is_refused_with_its_place(case: Any, tmp_path: Path) -> None:
    place, change, says = case
    document = two_stages()
    spot = place(document)
    if isinstance(spot, list):
        spot[:] = change
    else:
        spot.update(change)
    path = written(document, tmp_path)
    with pytest.raises(ValueError, match=r"program\.json: ") as caught:
        read_program(path)
    assert says in str(caught.value)


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    document = two_stages()
    del document["classes"][0]["ops"][0]["name"]
    document["classes"][1]["ops"][2]["host_sync"] = "yes"
    with pytest.raises(ValueError, match="class 0, op 0: name ") as caught:
        read_program(written(document, tmp_path))
    assert "class 1, op 2: host_sync: " in str(caught.value)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "not JSON"),
        (b'{"format"', "not JSON"),
        (b"\xff\xfe", "1:1.*not UTF-8"),
        (b"[]", "stepsim-program"),
        (b'{"format": "stepsim-program", "version": 1}', "classes is"),
    ],
)
def test_a_file_that_is_no_program_is_refused(content: bytes, says: str, tmp_path: Path) -> None:
    plain, packed = tmp_path / "program.json", tmp_path / "program.json.gz"
    plain.write_bytes(content)
    packed.write_bytes(gzip.compress(content))
    for path in (plain, packed):
        with pytest.raises(ValueError, match=says):
            read_program(path)


def test_a_damaged_gzip_file_is_refused(tmp_path: Path) -> None:
    whole = gzip.compress(json.dumps(two_stages()).encode())
    path = tmp_path / "program.json.gz"
    for content in (whole[:-20], b"plain text", whole[:40] + b"\x00" * 40 + whole[80:]):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="gzip"):
            read_program(path)


@given(data=st.data())
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_one_value_becomes_the_file_is_read_or_refused(data: st.DataObject, tmp_path: Path) -> None:
    """No value of any type anywhere in a document brings another error than ValueError."""
    document: Any = two_stages()
    spot: Any = document
    while True:
        keys = list(spot) if isinstance(spot, dict) else list(range(len(spot)))
        key = data.draw(st.sampled_from(keys))
        if not spot[key] or not isinstance(spot[key], dict | list) or data.draw(st.integers(0, 3)) == 0:
            break
        spot = spot[key]
    odd: list[Any] = [
        None,
        True,
        -1,
        3,
        10**30,
        1e308,
        0.5,
        "",
        "x",
        [],
        [1],
        ["x", "y"],
        [[]],
        {},
        {"x": 1},
        [{}],
    ]
    spot[key] = data.draw(st.sampled_from(odd))
    path = written(document, tmp_path)
    told = str(path)
    try:
        read_program(path)
    except ValueError as mistake:
        told = str(mistake)
    assert str(path) in told
