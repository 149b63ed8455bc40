"""Fields of a scenario, odd values for them, and command lines to spoil: what a user can type.

Knows the program's own JSON Schema and its commands. Does not know which values are valid.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from random import Random
from typing import Any

COMMAND_LINES = (
    "run a.yaml --json --max-classes 100",
    "run a.yaml --fault 'link_degraded nic/1@node/0 factor=0.5 at=1ms duration=2ms' --json",
    "run a.yaml --fault 'gpu_throttle gpu/1 slow_factor=2' --timeline x.svg",
    "run llama3-8b-h100 --set training.micro_batch=1 --json",
    "compare a.yaml a.yaml --set-b parallelism.tp=4 --json",
    "memory a.yaml --stage 1 --json",
    "cluster a.yaml --set cluster.gpus=32 --json",
    "faults w.yaml -n 2 --seed 3 --json",
    "faults w.yaml --sweep checkpoint.storage.every=10min..60min -n 1 --json",
    "faults w.yaml --fault 'gpu_fatal gpu/3 time=1h' -n 1 --json",
    "collective all_reduce --gpus 16 --size 1MB --json",
    "collective all_gather --gpus 64 --size 1GB --sweep",
    "collective all_to_all --gpus 64 --size 64MB --algorithm ring --protocol LL --json",
    "collective all_reduce --gpu GB200-NVL72 --gpus 144 --interconnect ib-ndr400-x4 --nccl 2.28.9 --json",
    "collective all_reduce --cluster a.yaml --gpus 16 --json",
    "schedule 1f1b -p 4 -m 8 --tf 10 --tb 11 --tw 7 --tc 1 --json",
    "schedule interleaved -p 4 -m 8 -v 2 --svg x.svg",
    "schedule zb -p 4 -m 8 --memory-limit 2 --json",
    "schedule compare -p 4 -m 8 --json",
    "schedule dualpipe -p 4 -m 8",
    "list gpus --json",
    "list software",
    "schema",
    "schema --profile",
    "calibrate report H100-SXM5-80GB a.yaml --json",
    "replay a.yaml --json",
    "import a.yaml --given gpus=8 --framework nanotron",
    "export a.yaml --to megatron-lm",
    "export llama3-8b-h100 --to torchtitan --to-version v0.1.0",
    "validate a.yaml --jobs 1 --json",
)

_WORDS = (
    "0", "1", "-1", "2", "3", "4", "7", "8", "16", "64", "1000000", "1000000000", "1e30", "1e400",
    "-1e400", "0.5", "1.5",
    "nan", ".nan", ".inf", "-.inf", "inf", "true", "false", "null", "~", "", " ", "[]", "{}", "[1]",
    "[1,-1]", "{a: 1}",
    "[[1, -500]]", "1 s", "0 s", "-1 s", "1e40 s", "1e-20 s", "1 h", "1000000 d", "1 GB", "0 GB",
    "1 GB/s", "5 %", "400 Gb/s",
    "none", "full", "selective", "bf16", "fp8", "fp16", "fp32", "nvfp4", "1f1b", "interleaved", "zb-v",
    "dualpipe",
    "gpu/0", "gpu/99999999999", "node/0", "leaf/0", "[/b]", "[red]x", "\x1b[31m", "../a.yaml",
    "/dev/null", "/etc/passwd",
    "a.yaml", "w.yaml", ".", "/", "0..1000000000", "1..2", "1..0", "*a", "&a [*a]", "[" * 200,
    "x" * 3000, "&", "'", '"',
    "H100-SXM5-80GB", "A100-SXM4-80GB", "GB200-NVL72", "MI300X", "megatron-core-2025",
    "torchtitan-2025", "nanotron-2024",
    "deepseek-v3", "mixtral-8x7b", "llama3-70b", "uniform", "rail-optimized", "fat-tree", "torus",
    "dragonfly",
)  # fmt: skip

VALUES = tuple(word for word in _WORDS if word.replace("-", "").replace(".", "").replace("/", "").isalnum())
"""Those that are names or numbers, as text."""


def odd_value(rng: Random) -> str:
    """A word that might be a value of some field."""
    return rng.choice(_WORDS) if rng.random() < 0.85 else str(rng.randrange(-3, 3000))


@lru_cache(maxsize=1)
def fields() -> tuple[str, ...]:
    """Every dotted field of a scenario, by its JSON Schema."""
    from stepsim.sim.scenario.schema import json_schema

    schema = json_schema()
    return tuple(sorted(set(_paths(schema, schema, "", 0))))


def _paths(node: dict[str, Any], schema: dict[str, Any], path: str, depth: int) -> Iterator[str]:
    if path:
        yield path
    if depth > 4:
        return
    for other in (*node.get("anyOf", ()), *node.get("oneOf", ()), *node.get("allOf", ())):
        yield from _paths(other, schema, path, depth + 1)
    if reference := node.get("$ref"):
        yield from _paths(schema["$defs"][reference.rpartition("/")[2]], schema, path, depth)
    for name, inside in node.get("properties", {}).items():
        yield from _paths(inside, schema, f"{path}.{name}" if path else name, depth + 1)
