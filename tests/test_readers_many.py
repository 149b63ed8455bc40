"""Many files at once: those that can be used are used, the others are named. What real files taught."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from measured_files import ATTENTION, GEMM, Layout, collectives, event, read, rendered, report, trace
from results import fake_result
from trace_documents import trace_document
from typer.testing import CliRunner
from validation_cases import case_document, write_cases

from stepsim.calibration.readers.nccl_log import parse_log, read_log
from stepsim.calibration.readers.traced import is_collective
from stepsim.cli.main import app
from stepsim.hardware.files import OverwriteError, read_each

GPU = "H100-SXM5-80GB"


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(one) for one in arguments])


# One bad file does not stop the others ---------------------------------------------------------------------


def log_text(
    gpu: str = "H100 SXM", fabric: str = "InfiniBand NDR 8x400 Gb/s", kind: str = "all_reduce"
) -> str:
    layout = Layout(prefix="", root=True, error_column="#wrong", hashes=True, extra=False)
    rows = [(8 << (2 * i), 20.0 + (8 << (2 * i)) / 2e5, 20.0 + (8 << (2 * i)) / 2e5) for i in range(12)]
    return "\n".join([f"## gpu: {gpu}", f"## fabric: {fabric}", *rendered(kind, 16, rows, layout)])


def logs(folder: Path) -> tuple[Path, Path]:
    """One that can be used, and one on a network that nobody knows."""
    good, other = folder / "good.txt", folder / "other.txt"
    good.write_text(log_text())
    other.write_text(log_text(fabric="carrier pigeons"))
    return good, other


def points(folder: Path) -> tuple[Path, Path]:
    good, other = folder / "good.yaml", folder / "other.yaml"
    many = [GEMM | {"id": f"m{m}", "shape": {"m": m, "n": 4096, "k": 4096}} for m in (1024, 2048, 4096, 8192)]
    good.write_text(json.dumps({"schema": 1, "kind": "kernels", "points": [*many, ATTENTION]}))
    other.write_text(json.dumps({"schema": 1, "kind": "kernels", "points": [GEMM | {"gpu": "Voodoo2"}]}))
    return good, other


def cases(folder: Path) -> tuple[Path, Path]:
    good = write_cases(folder / "good.yaml", [case_document()])
    other = write_cases(folder / "other.yaml", [case_document({"layout.tp": "eight"})])
    return Path(good), Path(other)


def tables(folder: Path) -> tuple[Path, Path]:
    other = folder / "other.csv"
    other.write_text("kind,ranks\nx,1\n")
    good = folder / "good.csv"
    lines = [f"all_reduce,8,1,{c.bytes:.0f},{c.seconds},{GPU}" for c in collectives(2e-5, 4e-9, 2e11)]
    good.write_text("\n".join(["kind,ranks,hosts,bytes,seconds,gpu", *lines]))
    return good, other


COMMANDS: dict[str, tuple[Callable[[Path], tuple[Path, Path]], tuple[str, ...], tuple[str, ...]]] = {
    "validate --nccl": (logs, ("validate", "--nccl"), ()),
    "calibrate collectives": (logs, ("calibrate", "collectives"), ()),
    "validate --kernels": (points, ("validate", "--kernels"), ()),
    "validate": (cases, ("validate",), ("--jobs", "1")),
    "calibrate fit": (tables, ("calibrate", "fit"), ("--replicas", "0")),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_the_other_files_are_used(name: str, tmp_path: Path) -> None:
    make, command, options = COMMANDS[name]
    good, other = make(tmp_path)
    out = ("--out", str(tmp_path / "p.yaml")) if name == "calibrate fit" else ()
    both = run(*command, good, other, *options, *out, "--json")
    assert both.exit_code == 0, both.stderr
    document = json.loads(both.stdout)
    (refused,) = document["refused"]
    assert refused["file"] == str(other)
    assert refused["reason"]
    assert str(other) not in refused["reason"]
    assert str(other) in both.stderr
    alone = json.loads(run(*command, good, *options, *out, "--json").stdout)
    assert alone["refused"] == []
    assert {key: value for key, value in document.items() if key != "refused"} == {
        key: value for key, value in alone.items() if key != "refused"
    }
    shown = run(*command, good, other, *options, *out)
    assert (shown.exit_code, "refused:" in shown.stdout) == (0, True)
    neither = run(*command, other, *options, *out)
    assert (neither.exit_code, str(other) in neither.stderr) == (2, True)
    none = run(*command, other, tmp_path / "absent.txt", *options, *out)
    assert none.exit_code == 2
    assert all(name in none.stderr for name in (str(other), "absent.txt"))


def test_the_report_goes_on_too(tmp_path: Path) -> None:
    good, other = tables(tmp_path)
    out = tmp_path / "p.profile.yaml"
    run("calibrate", "fit", good, "--out", out, "--replicas", "0")
    done = run("calibrate", "report", out, "--points", good, "--points", other, "--json")
    assert done.exit_code == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["residuals"]
    assert [one["file"] for one in document["refused"]] == [str(other)]


def test_an_input_that_is_an_output_is_no_refusal(tmp_path: Path) -> None:
    good, _ = tables(tmp_path)
    out, link = tmp_path / "p.yaml", tmp_path / "same.yaml"
    out.write_text("mine")
    link.hardlink_to(out)
    done = run("calibrate", "fit", good, link, "--out", out)
    assert (done.exit_code, out.read_text()) == (2, "mine")

    def takes(path: Path) -> str:
        if path.name == "p.yaml":
            raise OverwriteError(path, "is an output")
        return path.name

    with pytest.raises(OverwriteError):
        read_each([good, out], takes)


@pytest.mark.parametrize(
    "command", [("validate", "--nccl"), ("calibrate", "collectives"), ("calibrate", "fit")]
)
def test_unknown_names_are_mistakes_of_the_command(command: tuple[str, ...], tmp_path: Path) -> None:
    good, _ = logs(tmp_path)
    for option in (("--interconnect", "nonsense"), ("--gpu", "Voodoo2")):
        done = run(*command, good, *option)
        assert done.exit_code == 2
        assert "good.txt" not in done.stderr.replace("Usage", "")
        assert "nonsense" in done.stderr or "Voodoo2" in done.stderr


def test_a_network_that_is_given_is_that_of_all_logs(tmp_path: Path) -> None:
    """What the refusal of a log without one proposes, the command takes."""
    good, other = logs(tmp_path)
    unnamed = run("validate", "--nccl", other, "--json")
    assert (unnamed.exit_code, "give --interconnect" in unnamed.stderr) == (2, True)
    found = {}
    for name in ("ib-ndr400-x8", "ib-hdr200-x8"):
        both = json.loads(run("validate", "--nccl", good, other, "--interconnect", name, "--json").stdout)
        times: dict[str, list[float]] = {row["log"]: [] for row in both["rows"]}
        for row in both["rows"]:
            times[row["log"]].append(row["predicted_s"])
        assert times["good"] == times["other"]
        found[name] = times["good"]
    stated = json.loads(run("validate", "--nccl", good, "--json").stdout)
    assert [row["predicted_s"] for row in stated["rows"]] == found["ib-ndr400-x8"]
    assert found["ib-hdr200-x8"][-1] > 1.2 * found["ib-ndr400-x8"][-1]
    named = run("validate", good, "--interconnect", "ib-ndr400-x8")
    assert (named.exit_code, "give --nccl" in named.stderr) == (2, True)


def test_a_fit_that_misses_its_own_measurements_answers_no(tmp_path: Path) -> None:
    wild = [
        (c.bytes, c.seconds * (1 if i % 3 else 40)) for i, c in enumerate(collectives(2e-5, 4e-9, 2e11) * 2)
    ]
    lines = [f"all_reduce,8,1,{size:.0f},{seconds},{GPU}" for size, seconds in wild]
    (tmp_path / "c.csv").write_text("\n".join(["kind,ranks,hosts,bytes,seconds,gpu", *lines]))
    out = tmp_path / "p.yaml"
    done = run("calibrate", "fit", tmp_path / "c.csv", "--out", out, "--json")
    assert done.exit_code == 1, done.stderr
    assert out.exists()
    (poor,) = json.loads(done.stdout)["poor"]
    assert "all_reduce" in poor
    assert poor in done.stderr


# Files of other kinds --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.parquet", b"PAR1\0\0", "Parquet"),
        ("a.et", b"\x0a\x12", "Chakra"),
        ("a.tar.gz", gzip.compress(b"x", mtime=0), "gzip|archive"),
        ("a.tgz", gzip.compress(b"x", mtime=0), "gzip|archive"),
        ("a.zip", b"PK\x03\x04rest", "zip|archive"),
        ("a.log.gz", gzip.compress(b"x", mtime=0), "gzip"),
        ("a.nsys-rep", b"anything", "nsys export"),
        ("a.bin", b"\0\1\2", "no text"),
    ],
)
def test_what_is_no_text_does_not_reach_the_reader_of_logs(
    name: str, content: bytes, says: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    for reader in (read, read_log):
        with pytest.raises(ValueError, match=says):
            reader(path)


def test_a_bare_list_of_events_is_a_trace(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps(trace()["traceEvents"]))
    assert read(path, GPU).kernels == read_whole(tmp_path).kernels
    path.write_text('[{"node": 1}]')
    with pytest.raises(ValueError, match="traceEvents"):
        read(path, GPU)


def read_whole(folder: Path, **more: Any) -> Any:
    path = folder / "t.json"
    path.write_text(json.dumps(trace() | more))
    return read(path)


def test_our_own_trace_is_read_and_teaches_no_fit(tmp_path: Path) -> None:
    result = fake_result(pp=4, vpp=2, microbatches=8)
    path = tmp_path / "own.json"
    path.write_text(json.dumps(trace_document(result)))
    measured = read(path, None if result.scenario else GPU)
    assert (measured.kernels, measured.collectives) == ((), ())
    assert measured.facts["step time"].startswith(f"{result.step_time_s:.6g} s")
    assert measured.facts["communication"]
    done = run("calibrate", "fit", path, "--gpu", measured.gpu, "--out", tmp_path / "p.yaml")
    assert (done.exit_code, "no fit may learn" in done.stderr) == (2, True)


# What traces say -------------------------------------------------------------------------------------------


def test_a_step_is_counted_once_and_communication_is_a_steps(tmp_path: Path) -> None:
    events = trace()["traceEvents"]
    events += [event(f"ProfilerStep#{n}", "gpu_user_annotation", 50 + 100 * n, 10) for n in (5, 6)]
    measured = read_whole(tmp_path, traceEvents=events)
    assert measured.facts["step time"] == "0.002 s (median of 2)"
    # 60 us of all_reduce in two steps, 10 of them beside a kernel
    assert measured.facts["communication"] == "3e-05 s a step, 16.7% of it beside kernels"
    marked = [one for one in events if one.get("cat") != "user_annotation"]
    assert "(median of 2)" in read_whole(tmp_path, traceEvents=marked).facts["step time"]
    unmarked = [one for one in marked if "annotation" not in one.get("cat", "")]
    assert read_whole(tmp_path, traceEvents=unmarked).facts["communication"].startswith("6e-05 s in all")


def test_kernels_belong_to_the_step_that_launched_them(tmp_path: Path) -> None:
    """The GPU lags: the last step's kernels run after its end, earlier ones within the first."""
    events = [
        event("ProfilerStep#1", "user_annotation", 100, 100),
        event("cudaLaunchKernel", "cuda_runtime", 50, 1, correlation=1),
        event("cudaLaunchKernel", "cuda_runtime", 150, 1, correlation=2),
        event("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)", "kernel", 120, 30, correlation=1),
        event("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)", "kernel", 300, 7, correlation=2),
    ]
    assert read_whole(tmp_path, traceEvents=events).facts["communication"].startswith("7e-06 s a step")


def test_devices_do_not_hide_each_others_communication(tmp_path: Path) -> None:
    events = [
        event("k", "kernel", 0, 100, device=0),
        event("ncclDevKernel_AllReduce_RING", "kernel", 0, 100, device=1),
    ]
    facts = read_whole(tmp_path, traceEvents=events).facts
    assert facts["communication"] == "5e-05 s in all, 0.0% of it beside kernels"


@pytest.mark.parametrize(
    ("memory", "gpu"), [(42297524224, "A100-SXM4-40GB"), (85e9, "A100-SXM4-80GB"), (20e9, None)]
)
def test_a_board_is_known_by_its_memory(memory: float, gpu: str | None, tmp_path: Path) -> None:
    devices = [{"id": 0, "name": "NVIDIA A100", "totalGlobalMem": memory}]
    if gpu:
        assert read_whole(tmp_path, deviceProperties=devices).gpu == gpu
    else:
        with pytest.raises(ValueError, match="give --gpu"):
            read_whole(tmp_path, deviceProperties=devices)


@pytest.mark.parametrize(
    ("ranks", "world", "domains"),
    [("[0, 8]", 16, 2), ("[0, 1]", 16, 1), (None, 2, 1), (None, 16, None), ("[0, 1, ..., 7]", 16, None)],
)
def test_a_group_is_where_its_ranks_are(
    ranks: str | None, world: int, domains: int | None, tmp_path: Path
) -> None:
    message = {"Collective name": "allreduce", "In msg nelems": 8, "Out msg nelems": 8, "Group size": 2}
    args = message | {"dtype": "Float"} | ({"Process Group Ranks": ranks} if ranks else {})
    events = [event("ncclDevKernel_AllReduce_RING", "kernel", 0, 100, **args)]
    measured = read_whole(tmp_path, traceEvents=events, distributedInfo={"world_size": world})
    assert [one.domains for one in measured.collectives] == ([domains] if domains else [])


def test_every_kernel_of_nccl_is_communication() -> None:
    for name in (
        "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)",
        "ncclDevKernel_Generic_4(x)",
        "ncclSymkDevKernel_AllReduce_RSxLD_AGxSTMC_sum_bf16(x)",
        "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(x)",
    ):
        assert is_collective(name), name


def test_a_report_states_its_memory(tmp_path: Path) -> None:
    import sqlite3

    path = report(tmp_path / "r.sqlite", "NVIDIA A100")
    with sqlite3.connect(path) as base:
        base.execute("ALTER TABLE TARGET_INFO_GPU ADD COLUMN totalMemory INTEGER")
        base.execute("UPDATE TARGET_INFO_GPU SET totalMemory = 42297524224")
    base.close()
    assert read(path).gpu == "A100-SXM4-40GB"


@pytest.mark.parametrize("name", ["h#x.sqlite", "a%41.sqlite", "b?mode=rwc.sqlite"])
def test_names_of_reports_are_names(name: str, tmp_path: Path) -> None:
    assert read(report(tmp_path / name)).gpu == GPU
    assert [path.name for path in tmp_path.iterdir()] == [name]


# Logs with NCCL's own lines --------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["", "[0] ", "[1,0]<stdout>:"])
@pytest.mark.parametrize("cuts", [(5,), (9,), (5, 9), (13,)])
def test_rows_that_nccl_cut_into_pieces_are_read(cuts: tuple[int, ...], prefix: str) -> None:
    """After the description, after the out-of-place half, or at the end, with and without a new line."""
    text = log_text().splitlines()
    said = "node-1:6000:6100 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC"
    for glued in (True, False):
        broken = []
        for line in text:
            words = line.split()
            if not line[:1].isdigit():
                broken.append(prefix + line)
                continue
            begin = 0
            for cut in (*cuts, len(words)):
                piece = " ".join(words[begin:cut])
                if cut == len(words):
                    broken += [prefix + piece] if piece else []
                elif glued:
                    broken += [prefix + piece + prefix + said, prefix + said]
                else:
                    broken += [prefix + piece, prefix + said, prefix + said]
                begin = cut
        assert parse_log(broken, "x.txt").rows == parse_log(text, "x.txt").rows


def test_a_piece_that_never_comes_is_an_error() -> None:
    text = log_text().splitlines()
    last = max(number for number, line in enumerate(text) if line[:1].isdigit())
    words = text[last].split()
    text[last] = " ".join(words[:5]) + "node-1:6000:6100 [0] NCCL INFO Connected all rings"
    with pytest.raises(ValueError, match=f"x.txt:{last + 1}: 5 fields"):
        parse_log(text, "x.txt")


@pytest.mark.parametrize(
    ("head", "says"),
    [
        ("## nodes: two", "## nodes"),
        ("## ranks: 0", "## ranks"),
        ("## nodes: 3", "3 nodes"),
        ("## gpus_per_node: 4", "2 nodes"),
        ("## ranks: " + "9" * 5000, "## ranks"),
    ],
)
def test_heads_that_contradict_the_log_are_refused(head: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_log([head, *log_text().splitlines()], "x.txt")
