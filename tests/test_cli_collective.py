"""``stepsim collective``: what it prints and draws, its definitions of bandwidth, and how it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from drawn import lines, marks
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from stepsim.calibration.validation.collective_picture import MEASURED, PREDICTED
from stepsim.cli.main import app

KEYS = [
    "kind", "bytes", "ranks", "nodes", "algorithm", "protocol", "time_s", "algbw_bytes_per_s",
    "busbw_bytes_per_s", "binding_link",
]  # fmt: skip
"""Keys of the JSON document, which stay fixed."""

LOG = """\
## gpu: H100 SXM
## nodes: 1
## gpus_per_node: 8
## collective: all_reduce
#  size  count  type  redop  root  time  algbw  busbw  #wrong  time  algbw  busbw  #wrong
1048576 262144 float sum -1 26.93 38.94 68.14 0 26.93 38.94 68.14 0
16777216 4194304 float sum -1 123.0 136.40 238.70 0 123.0 136.40 238.70 0
1073741824 268435456 float sum -1 4016.4 267.34 467.84 0 4016.4 267.34 467.84 0
"""


def collective(*arguments: str) -> Any:
    done = CliRunner().invoke(app, ["collective", *arguments, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def refused(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["collective", *arguments])
    assert done.exit_code == 2
    assert done.stdout == ""
    return done.stderr


@pytest.mark.parametrize(
    ("kind", "factor"),
    [
        ("all_reduce", 2 * 63 / 64),
        ("all_gather", 63 / 64),
        ("reduce_scatter", 63 / 64),
        ("all_to_all", 63 / 64),
        ("gather", 63 / 64),
        ("scatter", 63 / 64),
        ("broadcast", 1.0),
        ("reduce", 1.0),
        ("sendrecv", 1.0),
    ],
)
def test_bandwidths_are_those_of_nccl_tests(kind: str, factor: float) -> None:
    """doc/PERFORMANCE.md: algbw is size over time, busbw that times the factor of the collective."""
    one = collective(kind, "--size", "1GB", "--gpus", "64")
    assert list(one) == KEYS
    assert (one["kind"], one["bytes"], one["ranks"], one["nodes"]) == (kind, 1e9, 64, 8)
    assert one["algbw_bytes_per_s"] == pytest.approx(1e9 / one["time_s"])
    assert one["busbw_bytes_per_s"] == pytest.approx(factor * one["algbw_bytes_per_s"])


@pytest.mark.parametrize(
    ("arguments", "algorithm", "protocol", "link"),
    [
        (("all_reduce", "--gpus", "8", "--size", "8B"), "ring", "LL", "nvlink"),
        (("all_reduce", "--gpus", "8", "--size", "1GB"), "nvls", "Simple", "nvlink"),
        (("all_reduce", "--gpus", "16", "--size", "1GB"), "nvls_tree", "Simple", "nvlink"),
        (("all_reduce", "--gpus", "64", "--size", "8B"), "tree", "LL", "nvlink"),
        (("all_gather", "--gpus", "64", "--size", "8GB"), "ring", "Simple", "nic"),
        (("all_gather", "--gpus", "8", "--size", "8GB"), "ring", "Simple", "nvlink"),
        (("all_to_all", "--gpus", "64", "--size", "1GB"), "pairs", "Simple", "nic"),
        (
            ("all_reduce", "--gpus", "8", "--size", "1GB", "--gpu", "A100-SXM4-80GB"),
            "ring",
            "Simple",
            "nvlink",
        ),
    ],
)
def test_algorithm_and_protocol_are_chosen_as_nccl_does(
    arguments: tuple[str, ...], algorithm: str, protocol: str, link: str
) -> None:
    """NCCL's regimes: LL for the smallest, the switch for large all-reduces of Hopper, else rings."""
    one = collective(*arguments)
    assert (one["algorithm"], one["protocol"], one["binding_link"]) == (algorithm, protocol, link)


def test_forced_choices_are_made_and_never_quicker() -> None:
    free = collective("all_reduce", "--gpus", "16", "--size", "64MiB")
    forced = collective(
        "all_reduce", "--gpus", "16", "--size", "64MiB", "--algorithm", "ring", "--protocol", "LL"
    )
    assert (forced["algorithm"], forced["protocol"]) == ("ring", "LL")
    assert forced["time_s"] > free["time_s"]


@settings(max_examples=15)
@given(
    st.sampled_from(["all_reduce", "all_gather", "all_to_all"]),
    st.sampled_from([8, 16, 64]),
    st.integers(3, 34),
)
def test_a_sweep_grows(kind: str, gpus: int, power: int) -> None:
    found = collective(kind, "--gpus", str(gpus), "--size", f"{2**power}B", "--sweep")
    rows = found if isinstance(found, list) else [found]
    assert [row["bytes"] for row in rows] == [float(2**k) for k in range(3, power + 1)]
    assert [row["time_s"] for row in rows] == sorted(row["time_s"] for row in rows)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "mine.txt"
    path.write_text(LOG, encoding="utf-8")
    return path


def test_a_log_gives_system_sizes_and_measured_times(log: Path) -> None:
    rows = collective("all_reduce", "--log", str(log))
    assert [row["bytes"] for row in rows] == [2.0**20, 2.0**24, 2.0**30]
    assert [row["measured_s"] for row in rows] == pytest.approx([26.93e-6, 123e-6, 4016.4e-6])
    for row in rows:
        assert (row["ranks"], row["nodes"]) == (8, 1)
        assert row["time_s"] == pytest.approx(row["measured_s"], rel=0.25)


def test_a_log_says_itself_of_which_collective_it_is(log: Path) -> None:
    assert collective("--log", str(log)) == collective("all_reduce", "--log", str(log))
    done = CliRunner().invoke(app, ["collective", "--size", "1GB"])
    assert done.exit_code == 2
    assert "KIND" in done.output


@pytest.mark.parametrize(
    "options", [("--gpus", "16"), ("--size", "2GB"), ("--sweep",), ("--gpus-per-node", "4")]
)
def test_what_a_log_says_is_not_said_beside_it(log: Path, options: tuple[str, ...]) -> None:
    done = CliRunner().invoke(app, ["collective", "--log", str(log), *options])
    assert done.exit_code == 2
    assert "--log" in done.output


def test_a_gpu_beside_a_log_stands_for_its_own(log: Path) -> None:
    other = collective("--log", str(log), "--gpu", "A100-SXM4-80GB")
    assert [row["time_s"] for row in other] != [row["time_s"] for row in collective("--log", str(log))]


def test_a_described_network_needs_units() -> None:
    network = "{rate: 200, nics_per_node: 4}"
    done = CliRunner().invoke(app, ["collective", "all_reduce", "--interconnect", network])
    assert done.exit_code == 2
    assert "200 has no unit" in done.output


def test_the_picture_shows_both_series(log: Path, tmp_path: Path) -> None:
    plain, measured = tmp_path / "plain.svg", tmp_path / "out" / "measured.svg"
    collective("all_reduce", "--gpus", "16", "--size", "1MiB", "--svg", str(plain))
    collective("all_reduce", "--log", str(log), "--svg", str(measured))
    for path, curves, dots in ((plain, 0, 0), (measured, 2, 6)):
        svg = path.read_text(encoding="utf-8")
        assert len(lines(svg, PREDICTED)) == 2 + 1  # two panels and the legend
        assert len(lines(svg, MEASURED)) == curves + bool(curves)
        found = marks(svg, MEASURED)
        assert len(found) == dots
        assert all(0 < x < 1000 and 0 < y < 460 for x, y in found)
    assert "measured: mine" in measured.read_text(encoding="utf-8")
    again = tmp_path / "again.svg"
    collective("all_reduce", "--log", str(log), "--svg", str(again))
    assert again.read_bytes() == measured.read_bytes()


def test_the_table_names_algorithm_and_link() -> None:
    done = CliRunner().invoke(app, ["collective", "all_reduce", "--gpus", "16", "--size", "1GB"])
    assert done.exit_code == 0
    for word in ("all_reduce, 16 GPUs, 2 nodes", "nvls_tree", "Simple", "nvlink", "busbw GB/s"):
        assert word in done.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("all_together",), "no collective is called 'all_together'"),
        (
            ("all_gather", "--algorithm", "tree"),
            "no tree for this collective and group; there are: ring with LL",
        ),
        (("all_reduce", "--protocol", "LL256"), "no LL256"),
        (("sendrecv", "--algorithm", "ring"), "no ring"),
        (("all_reduce", "--size", "0B"), "at least one byte"),
        (("all_reduce", "--size", "1e40GB"), "must be 1e+21 bytes at most"),
        (("all_reduce", "--size", "large"), "large"),
        (("all_reduce", "--gpu", "H1000"), "H1000"),
        (("all_reduce", "--interconnect", "rope"), "rope"),
        (("all_reduce", "--interconnect", "{rat: 200 Gb/s}"), "no field is called 'rat'. Did you mean rate?"),
        (("all_reduce", "--interconnect", "{rate: 200"), "not valid YAML"),
        (("all_reduce", "--gpus", "12"), "gpus 12"),
        (("all_reduce", "--interconnect", "nvlink-only"), "has no network"),
        (("all_reduce", "--svg", "x.pdf"), "must end in .svg or .png"),
    ],
)
def test_mistakes_are_named(arguments: tuple[str, ...], says: str) -> None:
    assert says in refused(*arguments)


def test_a_network_may_be_described_where_it_is_asked_for() -> None:
    """As a scenario describes one: the figures of a network of the catalogue, or half of them."""

    def time_s(network: str) -> float:
        options = ("--gpus", "32", "--size", "1GB", "--algorithm", "ring", "--interconnect", network)
        return float(collective("all_reduce", *options)["time_s"])

    named = time_s("roce-400-x8")
    assert time_s("{rate: 400 Gb/s, nics_per_node: 8}") == named
    assert time_s("{extends: roce-400-x8, scale: 0.5}") == pytest.approx(2 * named, rel=0.1)


def test_a_log_of_another_collective_is_refused(log: Path) -> None:
    assert "is of all_reduce, not all_gather" in refused("all_gather", "--log", str(log))


def test_a_picture_does_not_overwrite_its_log(tmp_path: Path) -> None:
    path = tmp_path / "log.svg"
    path.write_text(LOG, encoding="utf-8")
    assert "already uses this file" in refused("all_reduce", "--log", str(path), "--svg", str(path))


def test_the_machine_of_a_scenario() -> None:
    """Its first hosts, as if their GPU and network had been named."""
    here = ("all_reduce", "--size", "1GB", "--gpus", "64")
    told = collective(*here, "--cluster", "gpt3-175b-h100")
    assert (told["ranks"], told["nodes"]) == (64, 8)
    assert told == collective(*here)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--gpus", "9999999"), "has 128"),
        (("--gpus", "12"), "whole hosts of 8"),
        (("--gpu", "H200-SXM-141GB"), "the scenario names GPU"),
    ],
)
def test_what_a_machine_of_a_scenario_cannot_give(options: tuple[str, ...], words: str) -> None:
    assert words in refused("all_reduce", "--cluster", "gpt3-175b-h100", *options)
