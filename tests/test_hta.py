"""Our traces under Holistic Trace Analysis: its figures and those of ``stepsim explain``, side by side."""

from __future__ import annotations

import json
import warnings
from itertools import accumulate
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from small_jobs import OWN, command, written

pytest.importorskip("hta")

pytestmark = pytest.mark.filterwarnings("ignore")  # its own, and those of what it needs

QUICK_HOST = {"preset": "megatron-core-2024", "host": {"host_s_per_kernel": 6e-6}}
"""With the preset's own host, no kernel of a job this small would bind the step."""

TRACES = {
    "pipeline": OWN["pipeline"],
    "sharded": OWN["sharded"] | {"training": OWN["sharded"].get("training", {})},
    "context": OWN["context"] | {"software": QUICK_HOST},
}
TRACES = {name: {key: value for key, value in changes.items() if value} for name, changes in TRACES.items()}
COMPUTE = ("GEMM", "attention", "pointwise", "optimizer", "other", "copy")
"""Parts that it counts as computing: a copy within the GPU, which we call by its name, is a kernel to it."""


class Analysed:
    """One rank's trace: the analysis, what explain says of it, and the kernels in it."""

    def __init__(self, path: Path) -> None:
        import gzip

        from hta.trace_analysis import TraceAnalysis

        self.analysis = TraceAnalysis(trace_files={0: str(path)})
        self.told = json.loads(command("explain", path, "--json"))
        events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
        self.launches = [e for e in events if e.get("cat") == "cuda_runtime"]
        self.kernels = [e for e in events if e.get("cat") in ("kernel", "gpu_memcpy")]

    def part(self, *names: str) -> float:
        """Microseconds of some parts."""
        found = sum(part["measured_s"] for part in self.told["parts"] if part["name"] in names)
        return float(found) * 1e6

    @property
    def exposed(self) -> float:
        return self.part(*(one["name"] for one in self.told["parts"] if one["name"].startswith("exposed")))

    @property
    def edges(self) -> float:
        """Microseconds of the step before its first kernel and behind its last: no idle time to it."""
        lasting = [e for e in self.kernels if e["dur"] > 0]
        begin, end = min(e["ts"] for e in lasting), max(e["ts"] + e["dur"] for e in lasting)
        return float(self.told["step_s"] * 1e6 - (end - begin))


@pytest.fixture(scope="module", params=TRACES)
def analysed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Analysed:
    place = tmp_path_factory.mktemp("hta")
    traces = place / "traces"
    traces.mkdir()
    command("run", written(place / "job.yaml", TRACES[request.param]), "--trace", traces)
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patch.setenv("HTA_DISABLE_NS_ROUNDING", "1")  # else it cuts all times to microseconds
        return Analysed(traces / "rank-0.json.gz")


def test_hta_finds_the_same_breakdown(analysed: Analysed) -> None:
    (row,) = analysed.analysis.get_temporal_breakdown(visualize=False).to_dict("records")
    assert row["compute_time(us)"] == pytest.approx(analysed.part(*COMPUTE), rel=0.01)
    assert row["non_compute_time(us)"] == pytest.approx(analysed.exposed, rel=0.01)
    idle = analysed.part("host", "waiting") - analysed.edges
    assert row["idle_time(us)"] == pytest.approx(idle, rel=0.01)


def test_hta_finds_the_same_overlap(analysed: Analysed) -> None:
    (row,) = analysed.analysis.get_comm_comp_overlap(visualize=False).to_dict("records")
    assert row["comp_comm_overlap_pctg"] == pytest.approx(100 * analysed.told["overlap"], rel=0.01, abs=0.01)


def test_idle_time_of_streams(analysed: Analysed) -> None:
    """Of each stream, from its first kernel to its last, what none of its kernels fills."""
    found, _ = analysed.analysis.get_idle_time_breakdown(visualize=False)
    streams = sorted(set(found["stream"]))
    assert len(streams) >= 2
    for stream in streams:
        rows = [e for e in analysed.kernels if e["args"]["stream"] == stream]
        span = max(e["ts"] + e["dur"] for e in rows) - min(e["ts"] for e in rows)
        idle = span - sum(e["dur"] for e in rows)
        told = found[found["stream"] == stream]["idle_time"].sum()
        assert told == pytest.approx(idle, rel=0.01, abs=1.0)


def test_kernels_by_their_type(analysed: Analysed) -> None:
    _, by_kernel = analysed.analysis.get_gpu_kernel_breakdown(visualize=False, num_kernels=1000)
    took: dict[str, Any] = by_kernel.groupby("kernel_type")["sum (us)"].sum().to_dict()
    by_category = {
        sends: sum(e["dur"] for e in analysed.kernels if ("Collective name" in e["args"]) is sends)
        for sends in (True, False)
    }
    assert took["COMMUNICATION"] == pytest.approx(by_category[True], rel=0.01)
    assert took["COMPUTATION"] == pytest.approx(by_category[False], rel=0.01)


def test_every_launch_has_its_kernel(analysed: Analysed) -> None:
    (found,) = analysed.analysis.get_cuda_kernel_launch_stats(visualize=False).values()
    assert len(found) == len(analysed.kernels)


def test_queues_are_as_long_as_the_host_is_ahead(analysed: Analysed) -> None:
    """Of each stream: how many kernels the host has launched that have not begun, at most and on average."""
    found = analysed.analysis.get_queue_length_summary(ranks=[0])["queue_length"]
    launched = {e["args"]["correlation"]: e["ts"] for e in analysed.launches}
    streams: dict[int, list[tuple[float, int]]] = {}
    for kernel in analysed.kernels:
        moves = streams.setdefault(kernel["args"]["stream"], [])
        moves += [(launched[kernel["args"]["correlation"]], 1), (kernel["ts"], -1)]
    assert {stream for _, stream in found.index} == streams.keys()
    for (_, stream), row in found.iterrows():
        # Kernels that begin as they are launched are one in the queue or none, as HTA happens to sort them.
        least, most = (
            list(
                accumulate(move for _, move in sorted(streams[stream], key=lambda at: (at[0], sign * at[1])))
            )
            for sign in (1, -1)
        )
        assert max(least) <= row["max"] <= max(most)
        assert 0.99 * fmean(least) <= row["mean"] <= 1.01 * fmean(most)


def test_hta_finds_a_critical_path_through_kernels(
    analysed: Analysed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is found, from the host's first call to the last kernel, and kernels bind a part of it."""
    import pandas as pd

    drop: Any = pd.DataFrame.drop

    def lenient(self: Any, *args: Any, axis: int = 0, columns: Any = None, **more: Any) -> Any:
        return drop(self, *args, **({"columns": columns} if columns is not None else {"axis": axis}), **more)

    monkeypatch.setattr(pd.DataFrame, "drop", lenient)  # it names an axis and columns, which pandas 3 refuses
    graph, found = analysed.analysis.critical_path_analysis(rank=0, annotation="ProfilerStep", instance_id=0)
    assert found
    assert len(graph.critical_path_nodes) > 10
    assert graph.summary()["gpu_compute_bound"] > 0.2  # per cent; the host of this small step binds the rest
