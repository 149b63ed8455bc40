"""The scenario that a fresh page shows: a mid-sized job whose layout fits."""

from __future__ import annotations

from typing import Any

FIRST: dict[str, Any] = {
    "model": "llama3-70b",
    "cluster": {"gpu": "H100-SXM5-80GB", "gpus": 128, "interconnect": "ib-ndr400-x8"},
    "parallelism": {"tp": 8, "pp": 4, "vpp": 5, "zero": 1, "sequence_parallel": True},
    "training": {"seq_length": 8192, "micro_batch": 1, "global_batch": 256, "precision": "bf16"},
    "schedule": "interleaved",
    "software": "nemo-2025",
}
