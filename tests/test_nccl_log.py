"""Logs of nccl-tests read back: every layout rendered at random, the published ones, and broken ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from measured_files import REDUCES, ROOTED, UNCHECKED, Layout, bus_factor, rendered, times

from stepsim.calibration.readers.nccl_bus import BUS_FACTORS, kind_of, named_kind, ranks_by_bus_factor
from stepsim.calibration.readers.nccl_log import parse_log, read_log, without_prefix
from stepsim.calibration.readers.nccl_system import forced_choice, system_of, tuned

PREFIXES = (
    "",
    "0: ",
    "[1,0]<stdout>:",
    "[pod/nccl-test-launcher-abc12/nccl] ",
    "2025-03-01T10:11:12.123456789Z ",
    "2025-03-01T10:11:12.123456789Z [1,0]<stdout>:",
    "nccl-host-1-0: ",
    "launcher-1  | ",
    "      ",
)


layouts = st.builds(
    Layout,
    prefix=st.sampled_from(PREFIXES),
    root=st.booleans(),
    error_column=st.sampled_from(["#wrong", "error", None]),
    hashes=st.booleans(),
    extra=st.booleans(),
)


@given(st.sampled_from(sorted(set(BUS_FACTORS) - {"hypercube"})), st.sampled_from([2, 8, 16]), times, layouts)
def test_what_a_layout_prints_is_read_back(
    kind: str, ranks: int, halves: list[tuple[int, int]], layout: Layout
) -> None:
    rows = [(8 << index, out / 100 + 1, inside / 100 + 1) for index, (out, inside) in enumerate(halves)]
    log = parse_log(rendered(kind, ranks, rows, layout), "random.txt")
    assert (log.kind, log.ranks, log.nodes, log.gpus_per_node) == (
        kind,
        ranks,
        max(1, ranks // 8),
        min(8, ranks),
    )
    assert log.gpu == "NVIDIA H100 80GB HBM3"
    assert log.nccl == "2.26.2+cuda12.8"
    assert [row.bytes for row in log.rows] == [size for size, _, _ in rows]
    for row, (_, out_us, in_us) in zip(log.rows, rows, strict=True):
        assert row.out_of_place_s == pytest.approx(out_us * 1e-6, abs=5.1e-9)
        assert row.in_place_s == pytest.approx(in_us * 1e-6, abs=5.1e-9)
        assert row.out_of_place_s is not None
        assert row.in_place_s is not None
        assert row.seconds == min(row.out_of_place_s, row.in_place_s)


@given(times, st.booleans(), st.booleans())
def test_rows_whose_heading_is_lost_are_read_by_their_count(
    halves: list[tuple[int, int]], root: bool, checked: bool
) -> None:
    layout = Layout(
        prefix="", root=root, error_column="#wrong" if checked else None, hashes=True, extra=False
    )
    rows = [(8 << index, out / 100 + 1, inside / 100 + 1) for index, (out, inside) in enumerate(halves)]
    lines = rendered("all_reduce", 8, rows, layout)
    bare = [line for line in lines if "time" not in line and "(us)" not in line]
    assert parse_log(bare, "x") == parse_log(lines, "x")


@given(st.sampled_from(PREFIXES), st.sampled_from(["#   size", "8   2   float", "# Rank  0"]))
def test_prefixes_of_launchers_are_taken_off(prefix: str, line: str) -> None:
    assert without_prefix(prefix + line) == line


@pytest.mark.parametrize(
    ("kind", "ranks"), [(k, n) for k in ("all_reduce", "all_gather", "all_to_all") for n in (2, 4, 8, 16, 32)]
)
def test_bandwidths_betray_the_ranks(kind: str, ranks: int) -> None:
    assert ranks_by_bus_factor(kind, bus_factor(kind, ranks)) == ranks


@pytest.mark.parametrize(
    "kind", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "sendrecv", "broadcast"]
)
def test_a_row_betrays_its_collective(kind: str) -> None:
    fields = {"redop": "sum" if kind in REDUCES else "none", "root": "0" if kind in ROOTED else "-1"}
    assert kind_of(fields, bus_factor(kind, 8), unchecked=kind in UNCHECKED) == kind


def test_names_of_programs_are_known() -> None:
    names = (
        "all_reduce_perf",
        "alltoall_perf",
        "sendrecv_perf",
        "AllGather",
        "reduce-scatter",
        "bcast",
        "sum",
    )
    expected = ("all_reduce", "all_to_all", "sendrecv", "all_gather", "reduce_scatter", "broadcast", None)
    assert tuple(map(named_kind, names)) == expected


# Broken logs ---------------------------------------------------------------------------------------

HEAD = [
    "## collective: all_reduce",
    "## ranks: 8",
    "#  size  count  type  redop  root  time  algbw  busbw  #wrong  time  algbw  busbw  #wrong",
]
GOOD = "1048576 262144 float sum -1 100.0 10.49 18.35 0 100.0 10.49 18.35 0"


def test_rows_of_no_bytes_are_counted_and_left_out() -> None:
    log = parse_log([*HEAD, "0 0 float sum -1 0.3 0.00 0.00 0 0.3 0.00 0.00 0", GOOD], "x")
    assert (len(log.rows), log.skipped) == (1, 1)


def test_a_half_that_was_not_run_is_none() -> None:
    log = parse_log([*HEAD, GOOD.replace("18.35 0 100.0 10.49 18.35 0", "18.35 0 N/A N/A N/A N/A")], "x")
    assert log.rows[0].in_place_s is None
    assert log.rows[0].seconds == pytest.approx(1e-4)


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([], "bad.txt: no row"),
        (["#  size  count  type", "hello"], "bad.txt: no row"),
        ([*HEAD, GOOD, GOOD[:40]], r"bad.txt:5: \d+ fields .*13"),
        ([*HEAD, GOOD.replace("100.0", "1e0.0", 1)], "bad.txt:4: '1e0.0'"),
        ([*HEAD, GOOD.replace("100.0", "-1.0", 1)], "bad.txt:4: time -1.0 us"),
        (
            [*HEAD, GOOD.replace("10.49", "20.00", 1)],
            "bad.txt:4: 1048576 bytes in 100.0 us make 10.49 GB/s, not",
        ),
        ([*HEAD, "0 0 float sum -1 0.3 0.00 0.00 0 0.3 0.00 0.00 0"], "bad.txt:.*row.*size 0"),
        ([HEAD[1], HEAD[2], "8 2 float sum -1 10.0 0.00 0.00 0 10.0 0.00 0.00 0"], "its collective"),
        ([HEAD[0], HEAD[2], "8 2 float sum -1 10.0 0.00 0.00 0 10.0 0.00 0.00 0"], "many ranks"),
        (["8 2 float sum 10.0 0.00 0.00 0"], "bad.txt:1: 8 fields"),
        (["## ranks: 64", HEAD[0], HEAD[2], GOOD], "its hosts"),
    ],
)
def test_broken_logs_are_refused_by_file_and_line(lines: list[str], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_log(lines, "bad.txt")


@given(times, st.data())
def test_a_row_cut_short_is_never_taken_for_a_whole_one(
    halves: list[tuple[int, int]], data: st.DataObject
) -> None:
    layout = Layout(prefix="", root=True, error_column="#wrong", hashes=True, extra=False)
    rows = [(8 << index, out / 100 + 1, inside / 100 + 1) for index, (out, inside) in enumerate(halves)]
    lines = rendered("all_reduce", 8, rows, layout)
    index = data.draw(st.sampled_from([i for i, line in enumerate(lines) if line[0].isdigit()]))
    words = lines[index].split()
    keep = data.draw(st.integers(4, len(words) - 1))
    assume(keep < len(words))
    lines[index] = " ".join(words[:keep])
    with pytest.raises(ValueError, match=f"cut.txt:{index + 1}: "):
        parse_log(lines, "cut.txt")


# Published logs ------------------------------------------------------------------------------------


def logs(shared: Path) -> list[Path]:
    return sorted((shared / "data" / "nccl_logs").glob("*.txt"))


def test_every_published_log_is_read(shared: Path) -> None:
    read = [read_log(path) for path in logs(shared)]
    assert len(read) >= 33
    for log in read:
        assert log.ranks == log.nodes * log.gpus_per_node
        assert [row.bytes for row in log.rows] == sorted(row.bytes for row in log.rows)
        large = [row for row in log.rows if row.bus_bytes_per_s > 1e10 and row.out_of_place_s]
        for row in large:
            factor = row.bus_bytes_per_s / (row.bytes / (row.out_of_place_s or 1.0))
            assert factor == pytest.approx(bus_factor(log.kind, log.ranks), rel=0.01)


def test_every_published_log_names_its_system(shared: Path) -> None:
    systems = {log.log: system_of(log) for log in map(read_log, logs(shared))}
    assert systems["aws_p4de_a100_2n16g_allreduce"].interconnect.name == "efa-400-x1"
    assert systems["coreweave_gb200_20rack1440g_allreduce"].interconnect.name == "ib-ndr400-x4"
    assert systems["gcp_gb300_2n8g_allgather_jobset"].nodes_per_rack == 1
    assert systems["dgxc_h100_1n8g_allreduce"].gpu == "H100-SXM5-80GB"


def test_forced_and_unstated_settings_are_seen(shared: Path) -> None:
    by_name = {log.log: log for log in map(read_log, logs(shared))}
    assert forced_choice(by_name["h100_ib_2n16g_allreduce_ring_issue309"]) == ("ring", None)
    assert [name for name, log in by_name.items() if tuned(log)] == ["vultr_b200_2n16g_sendrecv_v2tuned"]


@pytest.mark.parametrize(
    ("fabric", "kind", "nics", "gbit_per_s"),
    [
        ("Slingshot-11, one 200 Gb/s NIC per GPU", "slingshot", 4, 200),
        ("4x100 Gb/s of some Ethernet", "roce", 4, 100),
        ("InfiniBand, one 300 Gb/s NIC per GPU", "infiniband", 4, 300),
        ("2 NICs of 50 Gbps", "roce", 2, 50),
    ],
)
def test_a_network_is_named_or_known_by_its_rates(
    fabric: str, kind: str, nics: int, gbit_per_s: float
) -> None:
    head = ["## gpu: GH200-96GB", "## nodes: 2", "## gpus_per_node: 4", f"## fabric: {fabric}"]
    found = system_of(parse_log([*head, *HEAD, GOOD], "x")).interconnect
    assert (found.kind, found.links_per_host) == (kind, nics)
    assert found.link_bytes_per_s == pytest.approx(gbit_per_s * 1e9 / 8)


def test_a_log_without_its_system_asks_for_it() -> None:
    log = parse_log([*HEAD, GOOD], "x")
    with pytest.raises(ValueError, match="give --gpu"):
        system_of(log)
    assert system_of(log, gpu="H100-SXM5-80GB").interconnect.name == "nvlink-only"
    wide = parse_log(["## nodes: 2", "## gpus_per_node: 4", *HEAD, GOOD], "x")
    with pytest.raises(ValueError, match="give --interconnect"):
        system_of(wide, gpu="H100-SXM5-80GB")
