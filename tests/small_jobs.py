"""A small job as a scenario's file, and the commands that traces of it are tried on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml
from typer.testing import CliRunner

from stepsim.cli.main import app

SMALL: dict[str, Any] = {
    "model": {
        "num_layers": 4,
        "hidden_size": 512,
        "num_attention_heads": 8,
        "ffn_hidden_size": 2048,
        "vocab_size": 1024,
        "mlp": "gelu",
    },
    "cluster": {"gpu": "H100-SXM5-80GB", "interconnect": "ib-ndr400-x4", "gpus": 8, "gpus_per_node": 4},
    "parallelism": {"tp": 2, "pp": 2},
    "training": {"global_batch": 8, "micro_batch": 1, "seq_length": 512, "precision": "bf16"},
    "software": "megatron-core-2024",
}
OWN: dict[str, dict[str, Any]] = {
    "pipeline": {},
    "zero bubble": {"parallelism": {"tp": 1, "pp": 4}, "schedule": "zb-h1"},
    "sharded": {"parallelism": {"tp": 1, "pp": 1}, "software": "torchtitan-2024"},
    "context": {"parallelism": {"tp": 1, "pp": 1, "cp": 4}},
}


def command(*words: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else " ".join(result.output.split())


def told(*words: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(command("explain", *words, "--json"))
    return found


def written(path: Path, changes: dict[str, Any]) -> Path:
    path.write_text(yaml.safe_dump(SMALL | changes), encoding="utf-8")
    return path
