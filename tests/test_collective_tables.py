"""Tables of one host's collectives: how they are read, what fits see, how far the constants are off."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepsim.calibration.fit.collective_constants import ONE_HOST, values_at
from stepsim.calibration.readers.nccl_tables import is_collective_table, read_collective_table, unseen
from stepsim.calibration.validation.collectives import compare, errors_by_size, predicted_s
from stepsim.cli.collective_logs import learnt_of_tables, of_tables, read_logs
from stepsim.hardware.collectives import collective_constants, collectives_document
from stepsim.hardware.gpus import get_gpu

COLUMNS = "gpu,gpus,collective,dtype,elements,latency_ms,source\n"
NCCL = "aiconfigurator comm/nccl/{}/nccl_perf.parquet"


def written(folder: Path, *lines: str) -> Path:
    path = folder / "table.csv"
    path.write_text(COLUMNS + "".join(f"{line}\n" for line in lines))
    return path


def test_repeats_of_a_size_are_one_point_and_versions_are_apart(tmp_path: Path) -> None:
    line = "H100-SXM5-80GB,8,alltoall,half,{},{},{}"
    old, new = NCCL.format("2.23"), NCCL.format("2.27.3")
    path = written(
        tmp_path,
        *[line.format(1024, ms, old) for ms in (0.3, 0.1, 0.2)],
        line.format(512, 0.1, old),
        line.format(512, 0.4, new),
    )
    assert is_collective_table(path)
    first, second = read_collective_table(path)
    assert (first.gpu, first.kind, first.ranks, first.nccl) == ("H100-SXM5-80GB", "all_to_all", 8, "2.23")
    assert first.points == ((1024.0, 1e-4), (2048.0, 2e-4))  # elements of two bytes
    assert second.points == ((1024.0, 4e-4),)
    assert first.name != second.name


@pytest.mark.parametrize(
    ("line", "field"),
    [
        ("H101,8,alltoall,half,8,0.1,x", "gpu"),
        ("H100-SXM5-80GB,1,alltoall,half,8,0.1,x", "gpus"),
        ("H100-SXM5-80GB,8,gossip,half,8,0.1,x", "collective"),
        ("H100-SXM5-80GB,8,alltoall,quarter,8,0.1,x", "dtype"),
        ("H100-SXM5-80GB,8,alltoall,half,0,0.1,x", "elements"),
        ("H100-SXM5-80GB,8,alltoall,half,8,soon,x", "latency_ms"),
    ],
)
def test_a_wrong_cell_is_named_by_line_and_column(tmp_path: Path, line: str, field: str) -> None:
    with pytest.raises(ValueError, match=f"table.csv:2: {field}: "):
        read_collective_table(written(tmp_path, line))


def test_a_point_is_seen_or_hidden(tmp_path: Path) -> None:
    lines = [f"H100-SXM5-80GB,8,all_reduce,half,{2**power},0.1,x" for power in range(4, 28)]
    tables = read_logs([written(tmp_path, *lines)]).tables
    (seen,), (hidden,) = of_tables(tables, hidden=False), of_tables(tables, hidden=True)
    assert {*seen.points} | {*hidden.points} == {*tables[0].points}
    assert not {*seen.points} & {*hidden.points}
    assert all(unseen(size, 8) for size, _ in hidden.points)
    assert learnt_of_tables(tables)[0].points == seen.points


def test_the_share_hidden_is_a_quarter() -> None:
    points = [(2.0 * size, ranks) for size in range(1, 1001) for ranks in (2, 4, 8)]
    assert sum(unseen(*point) for point in points) / len(points) == pytest.approx(0.25, abs=0.02)


@pytest.mark.parametrize("gpu", ["L40S", "A100-PCIe-80GB"])
def test_messages_among_cards_of_a_host_pass_pcie(tmp_path: Path, gpu: str) -> None:
    table = written(tmp_path, *[f"{gpu},8,alltoall,half,{2**power},0.1,x" for power in (20, 24, 28)])
    (case,) = read_logs([table]).tables
    times = predicted_s(case, collective_constants())
    assert times == sorted(times)
    for (size, _), seconds in zip(case.points, times, strict=True):
        assert seconds > size * 7 / 8 / get_gpu(gpu).pcie_bytes_per_s


def test_what_a_host_shows_is_in_the_file() -> None:
    values = values_at([one.path for one in ONE_HOST], collectives_document())
    for one in ONE_HOST:
        assert one.low * 0.999 <= values[one.path] <= one.high * 1.001


@pytest.mark.slow
def test_sizes_that_no_fit_saw_are_predicted(shared: Path) -> None:
    table = shared / "data" / "kernel_tables" / "nccl_one_node.csv"
    if not table.is_file():
        pytest.skip(f"no table {table}")
    joined = [
        case
        for case in of_tables(read_logs([table]).tables, hidden=True)
        if case.points and case.cluster.gpu.architecture in ("hopper", "blackwell")
    ]
    large = errors_by_size(compare(joined))["large"]
    assert large is not None
    assert large.rows > 300
    assert large.median <= 0.08
