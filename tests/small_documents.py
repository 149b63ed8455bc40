"""A scenario as a document, and documents as files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

SMALL: dict[str, Any] = {
    "model": "llama3-8b",
    "cluster": {"gpu": "H100-SXM5-80GB", "gpus": 32, "interconnect": "ib-ndr400-x8"},
    "parallelism": {"tp": 2, "pp": 2},
    "training": {"global_batch": 64, "micro_batch": 1, "seq_length": 4096, "precision": "bf16"},
    "software": "megatron-core-2024",
}


def written(folder: Path, name: str, document: dict[str, Any]) -> Path:
    path = folder / name
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path
