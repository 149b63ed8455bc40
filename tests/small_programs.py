"""A small program of nobody's scenario, as the plain document that a file would hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def two_stages() -> dict[str, Any]:
    """Two classes: a forward here, its activation sent there, a backward there, and a norm over both."""
    return {
        "format": "stepsim-program",
        "version": 1,
        "scenario": None,
        "sms": 100,
        "communicators": {"world": [0, 1]},
        "links": [{"nvlink.out": 1e9, "nvlink.in": 1e9}],
        "kernels": {"matmul": {"seconds": 0.5, "kind": "gemm", "flops": 1e12, "bytes": 1e9}},
        "transfers": {
            "activation": {"latency_s": 0.001, "bytes": 1e8, "weights": {"nvlink": 1.0}},
            "sum": {"latency_s": 0.002, "bytes": 8.0, "ceiling_bytes_per_s": 1e6, "sms": 8},
        },
        "blocks": {
            "layer": [
                {"name": "matmul", "kernel": "matmul"},
                {
                    "name": "tp sum",
                    "stream": "tp",
                    "collective": "all_reduce",
                    "communicator": "tp",
                    "transfer": "sum",
                    "after": [-1],
                },
            ]
        },
        "classes": [
            {
                "links": 0,
                "ops": [
                    {"name": "forward", "blocks": [["layer", 2]], "action": "0F0"},
                    _message({"send": "0F0", "to": 1}),
                    _norm(),
                ],
            },
            {
                "links": 0,
                "ops": [
                    _message({"receive": "0F0", "from": 0}),
                    {"name": "backward", "kernel": "matmul", "after": [-1], "action": "1B0"},
                    _norm(),
                ],
            },
        ],
    }


def written(document: Any, folder: Path) -> Path:
    """The document as a file."""
    path = folder / "program.json"
    path.write_text(json.dumps(document))
    return path


def _message(end: dict[str, Any]) -> dict[str, Any]:
    after = {"after": [-1]} if "send" in end else {}
    return {"name": "p2p", "stream": "pp", "messages": [{**end, "transfer": "activation"}], **after}


def _norm() -> dict[str, Any]:
    return {
        "name": "norm",
        "stream": "world",
        "category": "optimizer",
        "collective": "all_reduce",
        "communicator": "world",
        "transfer": "sum",
        "after": [-1],
    }
