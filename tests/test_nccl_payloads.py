"""NCCL's payloads in a report of Nsight Systems: sizes, peers and communicators of the messages on a GPU."""

from __future__ import annotations

import sqlite3
import struct
from pathlib import Path
from typing import Any

import pytest
from small_jobs import told

from stepsim.calibration.explain.from_nsys import read_nsys_steps
from stepsim.calibration.readers.nccl_payloads import NcclCall, nccl_calls

TABLES = """
CREATE TABLE StringIds (id INTEGER, value TEXT);
CREATE TABLE TARGET_INFO_GPU (name TEXT);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL
  (start INTEGER, end INTEGER, demangledName INTEGER, correlationId INTEGER, deviceId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME
  (correlationId INTEGER, globalTid INTEGER, start INTEGER, end INTEGER);
CREATE TABLE NVTX_EVENTS
  (start INTEGER, end INTEGER, globalTid INTEGER, text TEXT, textId INTEGER, binaryData BLOB);
CREATE TABLE NVTX_PAYLOAD_SCHEMA_ENTRIES
  (domainId INTEGER, schemaId INTEGER, idx INTEGER, type INTEGER, name TEXT, "offset" INTEGER);
INSERT INTO TARGET_INFO_GPU VALUES ('NVIDIA H100 80GB HBM3');
INSERT INTO StringIds VALUES
  (1, 'ncclDevKernel_AllReduce_Sum_bf16'), (2, 'ncclDevKernel_SendRecv'), (3, 'nvjet'), (4, 'ncclAllReduce');
INSERT INTO NVTX_PAYLOAD_SCHEMA_ENTRIES VALUES
  (1, 7, 0, 18, 'NCCL communicator ID', NULL), (1, 7, 1, 22, 'Message size [bytes]', 8),
  (1, 7, 2, 99, 'Reduction operation', 16),
  (1, 8, 0, 18, 'NCCL communicator ID', NULL), (1, 8, 1, 22, 'Message size [bytes]', 8),
  (1, 8, 2, 5, 'Peer rank', 16);
"""
SUM, SEND = 7, 8
"""Schemas of a collective and of a message."""


def payload(schema: int, communicator: int, size: int, peer: int = 0) -> bytes:
    content = struct.pack("<QQi", communicator, size, peer)
    return struct.pack("<IIIIQQ", 1, 0, schema, 0, len(content), 32 + len(content)) + content


def report(path: Path, calls: list[tuple[Any, ...]], kernels: list[tuple[Any, ...]]) -> Path:
    """Calls are (start, end, thread, text, textId, payload); kernels (start, end, name, GPU, launched at)."""
    with sqlite3.connect(path) as base:
        base.executescript(TABLES)
        base.executemany("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?, ?)", calls)
        for number, (start, end, name, gpu, launched) in enumerate(kernels, start=1):
            base.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, ?, ?)",
                (start, end, name, number, gpu),
            )
            base.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?)",
                (number, gpu, launched, launched + 5),
            )
    return path


CALLS = [
    (100, 200, 0, None, 4, payload(SUM, 2**64 - 1, 16 << 20)),
    (100, 200, 1, None, 4, payload(SUM, 2**64 - 1, 16 << 20)),
    (300, 400, 0, "ncclSend", None, payload(SEND, 5, 4096, peer=3)),
    (300, 400, 1, "ncclSend", None, payload(SEND, 6, 4096, peer=3)[:40]),  # cut short
    (500, 600, 0, "ncclGroupEnd", None, None),
    (700, 800, 1, "of others", None, payload(99, 5, 5)),
]
KERNELS = [
    (1000, 9000, 1, 0, 150),
    (3000, 9000, 1, 1, 150),
    (10_000, 12_000, 2, 0, 350),
    (10_000, 12_000, 2, 1, 350),
    (12_000, 13_000, 3, 0, 900),
]


def test_calls_are_decoded(tmp_path: Path) -> None:
    path = report(tmp_path / "r.sqlite", CALLS, KERNELS)
    with sqlite3.connect(path) as base:
        assert dict(nccl_calls(base)) == {
            1: NcclCall(name="ncclAllReduce", communicator="f" * 16, size_bytes=16 << 20),
            2: NcclCall(name="ncclAllReduce", communicator="f" * 16, size_bytes=16 << 20),
            3: NcclCall(name="ncclSend", communicator="5", size_bytes=4096, peer=3),
        }


def test_messages_have_their_sizes_and_ranks(tmp_path: Path) -> None:
    first, second = read_nsys_steps(report(tmp_path / "r.sqlite", CALLS, KERNELS))
    (step,), (other,) = first.steps, second.steps
    assert [(op.operator, op.shape, op.ranks) for op in step.ops] == [
        ("ncclAllReduce", "16 MiB", (0, 1)),
        ("ncclSend", "4 KiB with rank 3", ()),
        ("", "", ()),
    ]
    assert [op.group for op in other.ops] == [f"communicator {'f' * 16}", ""]


def test_who_comes_late_is_found(tmp_path: Path) -> None:
    """The second GPU begins its all-reduce 2 us after the first, which has waited for it."""
    found = told(report(tmp_path / "r.sqlite", CALLS, KERNELS))
    assert [one["waited_s"] for one in found["ranks"]] == pytest.approx([2e-6, 0.0])
    assert [one["caused_s"] for one in found["ranks"]] == pytest.approx([0.0, 2e-6])
    parts = {part["name"]: part["measured_s"] for part in found["parts"]}
    assert parts["exposed late peers"] == pytest.approx(1e-6)  # the mean of both
    assert (found["worst"][0]["kind"], found["worst"][0]["shape"]) == ("communication", "16 MiB")


def test_without_payloads_messages_are_kernels_alone(tmp_path: Path) -> None:
    path = report(tmp_path / "r.sqlite", CALLS, KERNELS)
    with sqlite3.connect(path) as base:
        base.execute("DROP TABLE NVTX_PAYLOAD_SCHEMA_ENTRIES")
    first, _ = read_nsys_steps(path)
    assert {op.group for op in first.steps[0].ops} == {""}
