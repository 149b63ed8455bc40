"""Files that others wrote, made wrong in every place: each is refused by name, or gives sound figures.

No reader may end in another exception than ValueError, and none may give a figure that is not finite or is
negative. The mistakes are systematic: every node of a small sound document by every kind of odd value, every
entry missing; and random ones of the bytes.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

import pytest
from fuzz.mutate import FEW, as_json, deletions, mutated, mutated_bytes, replacements
from measured_files import ATTENTION, COLLECTIVES, GEMM, GPU, KERNELS, Layout, rendered, report, trace
from validation_cases import MOE, NETWORK, case_document

from stepsim.calibration.cases.case import read_cases
from stepsim.calibration.cases.halves import read_halves
from stepsim.calibration.measure.kernel_csv import COLUMNS, read_rows
from stepsim.calibration.readers.measured import Measured
from stepsim.calibration.readers.measurements import Measurement, read_points
from stepsim.calibration.readers.nccl_log import read_log
from stepsim.calibration.readers.read import read_one
from stepsim.hardware.calibrated.read import read_profile_file
from stepsim.hardware.graph_file import read_graph

RANDOM = 60
"""Random mistakes for each reader, besides the systematic ones."""


def attempt(read: Callable[[Path], Any], path: Path, sound: Callable[[Any], bool]) -> bool:
    """Whether the file is read; what is read is sound, and what is not is refused by its name."""
    try:
        found = read(path)
    except ValueError as error:
        refusal = str(error)
    else:
        assert sound(found)
        return True
    assert path.name in refusal
    assert len(refusal) < 3000
    return False


def positive(*values: float) -> bool:
    return all(0 < value < math.inf for value in values)


def sound_kernels(points: tuple[Measurement, ...]) -> bool:
    return all(
        positive(point.seconds)
        and all(positive(k.hbm_bytes) and math.isfinite(k.flops) for k in point.kernels)
        for point in points
    )


def sound_measured(measured: Measured) -> bool:
    collectives = measured.collectives
    return sound_kernels(measured.kernels) and all(
        positive(one.seconds, one.bytes) and one.ranks > 1 and one.domains >= 1 for one in collectives
    )


def by_every_mistake(
    path: Path,
    document: Any,
    write: Callable[[Any], bytes],
    read: Callable[[Path], Any],
    sound: Callable[[Any], bool],
    one_in: int = 1,
) -> None:
    """The law, over every place of ``document``; the document itself is read.

    Of a large one each place has ``one_in`` so many of the values, others than its neighbours have.
    """
    path.write_bytes(write(document))
    assert attempt(read, path, sound)
    made = [one[-1] for number, one in enumerate(replacements(document)) if number % one_in == 0]
    made += [changed for _, changed in deletions(document)]
    made += [mutated(document, Random(seed), 1 + seed % 4) for seed in range(RANDOM)]
    refused = 0
    for changed in made:
        path.write_bytes(write(changed))
        refused += not attempt(read, path, sound)
    assert refused > len(made) / 10  # else nothing is checked
    whole = write(document)
    for seed in range(RANDOM):
        path.write_bytes(mutated_bytes(whole, Random(seed), 1 + seed % 4))
        attempt(read, path, sound)


# Documents -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_malformed_traces_are_refused(tmp_path: Path) -> None:
    document = trace() | {
        "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85018279936}],
        "distributedInfo": {"world_size": 8, "pg_config": [{"pg_name": "0", "ranks": list(range(4))}]},
    }
    launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 90, "dur": 2}
    kept = ("ProfilerStep#5", "aten::mm", "nvjet_tst_128x256", "aten::_scaled_dot_product_flash_attention")
    events = {
        one["name"]: one for one in document["traceEvents"] if one["name"] in kept or "nccl" in one["name"]
    }
    document["traceEvents"] = [
        *events.values(),
        launch | {"args": {"correlation": 7}},
        {
            "ph": "X",
            "cat": "kernel",
            "name": "k",
            "ts": 95,
            "dur": 2,
            "args": {"correlation": 7, "device": 0},
        },
    ]
    by_every_mistake(tmp_path / "t.json", document, as_json, read_one, sound_measured, one_in=3)


@pytest.mark.slow
def test_malformed_points_of_kernels_are_refused(tmp_path: Path) -> None:
    document = {"schema": 1, "kind": "kernels", "sources": {"made": "here"}, "points": [GEMM, ATTENTION]}

    def sound(found: tuple[tuple[Measurement, ...], dict[str, str]]) -> bool:
        return sound_kernels(found[0])

    by_every_mistake(tmp_path / "k.yaml", document, as_json, lambda path: read_points([path]), sound)


@pytest.mark.slow
def test_malformed_cases_are_refused(tmp_path: Path) -> None:
    case = case_document({"measured_network": NETWORK, "model.moe": MOE})
    document = {"schema": 1, "source": {"by": "me"}, "cases": [case]}

    def sound(cases: Any) -> bool:
        figures = [asdict(one) for one in cases]
        for one in figures:
            one["layout"].pop("recompute")  # a block that the scenario reads
        json.loads(json.dumps(figures), parse_constant=pytest.fail)
        return len(figures) <= 2

    by_every_mistake(tmp_path / "c.yaml", document, as_json, read_cases, sound, one_in=2)


@pytest.mark.slow
def test_malformed_halves_of_a_fit_are_refused(tmp_path: Path) -> None:
    half = {
        "gpus": {GPU: {"clock_fraction": 0.8, "corun_slowdown": 0.1}},
        "presets": {"megatron-core-2024": {"host_s_per_kernel": 4e-6, "step_fixed_s": 0.01}},
    }
    counts = {"fitted": 3, "cases": 4, "families": 2}
    document = {"constants": [half, half], "sources": {"a": half}, **counts}

    def sound(halves: Any) -> bool:
        every = (*halves.constants, *halves.sources.values())
        blocks = [block for one in every for part in (one.gpus, one.presets) for block in part.values()]
        return all(0 <= value <= 3600 for block in blocks for value in asdict(block).values())

    by_every_mistake(tmp_path / "h.json", document, as_json, read_halves, sound)


PROVENANCE = {"source": "mine", "points": 30, "median_residual": 0.02, "ranges": {"k": [1, 1000]}}
PROFILE = {
    "profile": 1, "gpu": GPU, "clock_fraction": 0.9, "kernel_latency": "2 us",
    "gemm": {"rates": {"bf16": {"fraction": 0.7}}, "tiles": [[128, 128, 0.9]], "provenance": PROVENANCE},
    "collectives": [
        {"kind": "all_gather", "ranks": 8, "domains": 1, "latency": "12 us", "sqrt_term_at_1MB": "3 us",
         "rate": "300 GB/s", "sizes": ["8 B", "10 GB"], "corrections": [["8 B", 1.1], ["1 kB", 0.9]],
         "provenance": PROVENANCE},
    ],
}  # fmt: skip


@pytest.mark.slow
def test_malformed_profiles_are_refused(tmp_path: Path) -> None:
    def sound(profile: Any) -> bool:
        json.loads(profile.model_dump_json(), parse_constant=pytest.fail)
        return True

    by_every_mistake(tmp_path / "p.yaml", PROFILE, as_json, read_profile_file, sound)


def test_malformed_graphs_are_refused(tmp_path: Path) -> None:
    ends = [("gpu 0", "nic 0"), ("gpu 1", "switch s"), ("nic 0", "switch s")]
    edges = [{"from": a, "to": b, "bandwidth": "50 GB/s", "latency": "1 us"} for a, b in ends]
    edges[0] |= {"kind": "nvlink", "one_way": False}  # type: ignore[dict-item]

    def sound(found: Any) -> bool:
        return all(positive(edge.bytes_per_s) and 0 <= edge.latency_s <= 60 for edge in found)

    by_every_mistake(tmp_path / "g.yaml", {"edges": edges}, as_json, read_graph, sound)


GRAPHML = """<?xml version="1.0" encoding="utf-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
  <key id="d0" for="edge" attr.name="bandwidth" attr.type="string"/>
  <key id="d1" for="edge" attr.name="latency" attr.type="string"/>
  <graph edgedefault="undirected">
    <node id="gpu 0"/><node id="gpu 1"/>
    <edge source="gpu 0" target="gpu 1"><data key="d0">50 GB/s</data><data key="d1">1 us</data></edge>
  </graph>
</graphml>
"""


def test_malformed_graphs_in_xml_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "g.graphml"
    path.write_text(GRAPHML)
    assert attempt(read_graph, path, bool)
    words = (
        "gpu 0",
        "50 GB/s",
        "1 us",
        "string",
        "edge",
        "undirected",
        'key="d0"',
        "d1",
        "bandwidth",
        "from",
    )
    odd = ("", "-1", "nan", "1e400 s", "1e300 s", "double", "int", "from", "&a;", "<b/>", "gpu " + "9" * 5000)
    texts = [GRAPHML.replace(word, value, n) for word in words for value in odd for n in (1, -1)]
    texts += [GRAPHML.replace(line, "") for line in GRAPHML.splitlines()]
    contents = [text.encode() for text in texts]
    contents += [mutated_bytes(GRAPHML.encode(), Random(seed), 1 + seed % 4) for seed in range(2 * RANDOM)]
    for content in contents:
        path.write_bytes(content)
        attempt(read_graph, path, lambda edges: all(positive(edge.bytes_per_s) for edge in edges))


# Tables ----------------------------------------------------------------------------------------------------

CELLS = (
    "",
    "0",
    "-5",
    "4096.5",
    "1e400",
    "nan",
    "-inf",
    "9" * 500,
    "true",
    "x",
    "[1]",
    "None",
    "0x10",
    " ",
    '"',
    "1,2",
)
OWN = dict.fromkeys(COLUMNS, "1") | {
    "id": "a", "family": "gemm", "operation": "gemm", "implementation": "torch", "dtype": "bf16",
    "seconds": "0.001", "direction": "", "gpu": GPU,
}  # fmt: skip
READ = ("id", "flops", "hbm_bytes", "seconds", "dtype")
"""Columns of our own table that a summary reads; the others are carried along."""
TABLES: dict[str, tuple[str, Callable[[Path], Any], Callable[[Any], bool]]] = {
    "kernels": (KERNELS.replace("operation\n", "operation,implementation\n"), read_one, sound_measured),
    "collectives": (COLLECTIVES, read_one, sound_measured),
    "own": (
        ",".join(OWN) + "\n" + ",".join(OWN.values()) + "\n",
        lambda path: read_rows([path]),
        lambda rows: all(positive(row.seconds) and math.isfinite(row.flops) for row in rows),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLES)
def test_malformed_tables_are_refused(name: str, tmp_path: Path) -> None:
    text, read, sound = TABLES[name]
    path = tmp_path / "t.csv"
    path.write_text(text)
    assert attempt(read, path, sound)
    lines = [line.split(",") for line in text.splitlines()]
    made = []
    for row, cells in enumerate(lines):
        for column in range(len(cells)):
            for odd in CELLS if row else ("", "x", "seconds"):
                if row and name == "own" and lines[0][column] not in READ:
                    continue
                changed = [list(line) for line in lines]
                changed[row][column] = odd
                made.append("\n".join(",".join(line) for line in changed))
        made.append("\n".join(",".join(line) for line in (*lines[:row], *lines[row + 1 :])))
        made.append("\n".join(",".join(line) for line in (*lines[: row + 1], cells[: len(cells) // 2])))
    made += [text + "x," * 40, text + "y" * 200_000, text.replace("\n", "\r"), text + '"' + text]
    refused = 0
    for one in made:
        path.write_text(one)
        refused += not attempt(read, path, sound)
    assert refused > len(made) / 10
    for seed in range(RANDOM):
        path.write_bytes(mutated_bytes(text.encode(), Random(seed), 1 + seed % 4))
        attempt(read, path, sound)


# Logs ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_malformed_logs_of_nccl_tests_are_refused(tmp_path: Path) -> None:
    layout = Layout(prefix="", root=True, error_column="#wrong", hashes=True, extra=False)
    lines = [
        "## collective: all_reduce",
        "## ranks: 8",
        "## nodes: 1",
        "## gpus_per_node: 8",
        "## gpu: H100 SXM",
    ]
    lines += rendered("all_reduce", 8, [(2**20, 100.0, 99.0), (2**21, 150.0, 151.0)], layout)
    path = tmp_path / "l.txt"

    def sound(log: Any) -> bool:
        rows = all(
            positive(row.seconds, row.bytes) and math.isfinite(row.bus_bytes_per_s) for row in log.rows
        )
        return rows and log.ranks > 1 and log.ranks <= log.nodes * log.gpus_per_node

    path.write_text("\n".join(lines))
    assert attempt(read_log, path, sound)
    odd = ("0", "-1", "nan", "inf", "1e400", "x", "N/A", "9" * 5000, "1.5", "")
    made = [[*lines[:at], *lines[at + 1 :]] for at in range(len(lines))]
    for at, line in enumerate(lines):
        if "Rank" in line and "Rank  0" not in line:
            continue  # all ranks are alike
        words = line.split(" ")
        places = [place for place, word in enumerate(words) if word and word != "#"]
        made += [
            [*lines[:at], " ".join([*words[:place], value, *words[place + 1 :]]), *lines[at + 1 :]]
            for place in places
            for value in odd
        ]
    refused = 0
    for one in made:
        path.write_text("\n".join(one))
        refused += not attempt(read_log, path, sound)
        attempt(read_one, path, sound_measured)
    assert refused > 50  # most words are comments
    for seed in range(2 * RANDOM):
        path.write_bytes(mutated_bytes("\n".join(lines).encode(), Random(seed), 1 + seed % 4))
        attempt(read_log, path, sound)


# Databases -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_reports_of_nsight_systems(tmp_path: Path) -> None:
    whole = report(tmp_path / "r.sqlite").read_bytes()
    path = tmp_path / "n.sqlite"
    values = [None, -1, 0, 1.5, 2**62, 2**63 - 1, "x", "", b"\xff\0", "nan", "aten::mm, sizes = [[[[1]]]]"]
    values += ["aten::mm, sizes = [[-1], 2]", "aten::mm, sizes = " + "[" * 4000, math.inf]
    with sqlite3.connect(tmp_path / "r.sqlite") as base:
        tables = [name for (name,) in base.execute("SELECT name FROM sqlite_master")]
        columns = [(table, row[1]) for table in tables for row in base.execute(f"PRAGMA table_info({table})")]
    changes: list[tuple[str, tuple[Any, ...]]] = [
        (f"UPDATE {table} SET {column} = ?", (value,)) for table, column in columns for value in values
    ]
    changes += [(f"ALTER TABLE {table} RENAME COLUMN {column} TO gone", ()) for table, column in columns]
    changes += [(f"{verb} {table}", ()) for verb in ("DROP TABLE", "DELETE FROM") for table in tables]
    refused = 0
    for statement, arguments in changes:
        path.write_bytes(whole)
        with sqlite3.connect(path) as base:
            base.execute(statement, arguments)
        base.close()
        refused += not attempt(read_one, path, sound_measured)
    assert refused > len(changes) / 10
    for seed in range(RANDOM):
        path.write_bytes(mutated_bytes(whole, Random(seed), 1 + seed % 4))
        attempt(read_one, path, sound_measured)


def test_the_values_that_are_tried_are_of_every_kind() -> None:
    assert {type(value) for value in FEW} == {type(None), bool, int, float, str, list, dict}
