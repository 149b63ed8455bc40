"""Small valid files of every kind that a command reads (``corpus/``), and the commands that read them.

``{file}`` in a command is the file, whole or made wrong, ``{other}`` a valid one of the same kind; ``{svg}``,
``{json}``, ``{csv}`` and so on are outputs; ``{graph}``, ``{model}``, ``{routing}``, ``{speeds}``,
``{weeks}``, ``{scheduled}`` and ``{beside}`` are scenarios that name the file in one of their fields. Knows
no mutation and no verdict.
"""

from __future__ import annotations

import json
import sqlite3
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent / "corpus"

_RUNS = (
    "run {file} --json",
    "run {file}",
    "run {file} --json --timeline {svg} --trace {json} --spans {csv}",
    "run {file} --json --topology {svg}",
    "run {file} --json --no-fold",
    "run {file} --json --save-program {json}",
    "memory {file} --json",
    "memory {file} --picture {svg}",
    "cluster {file} --json",
    "cluster {file} --svg {svg}",
    "compare {file} {other} --json",
    "compare {other} {file}",
    "run {file} --json --fault 'gpu_throttle gpu/1 slow_factor=1.5'",
    "run {file} --json --fault 'nic_down nic/0@node/0' --fault 'host_jitter job cv=.05'",
)
_WEEKS = (
    "faults {file} --json",
    "faults {file}",
    "faults {file} --what-if --html {html} --events {csv}",
    "faults {file} -n 1 --json --sweep recovery.spares.warm=0..4",
)
_LOGS = (
    "validate --nccl {file} {other} --json",
    "validate --nccl {file}",
    "calibrate collectives {file} --json",
    "calibrate fit {file} --gpu H100-SXM5-80GB --replicas 2 --out {yaml} --json",
    "collective all_reduce --log {file} --json",
)
_FITS = ("calibrate fit {file} --replicas 2 --out {yaml} --json",)
_TABLES = (*_FITS, "calibrate report H100-SXM5-80GB --points {file} --json")
_PROFILES = (
    "run gpt-22b-a100 --json --set cluster.gpu=H100-SXM5-80GB --set calibration=[{file}]",
    "calibrate report {file} --json",
    "calibrate report {file}",
    "collective all_reduce --gpus 8 --size 1MB --calibration {file} --json",
)

_MACHINE = "--given gpu=H100-SXM5-80GB --given interconnect=ib-ndr400-x8"
_FRAMEWORK = (
    f"import {{file}} {_MACHINE}",
    "import {file}",
    f"import {{file}} {_MACHINE} --out {{yaml}}",
    f"run {{file}} {_MACHINE} --json",
    f"memory {{file}} {_MACHINE} --json",
    f"compare {{file}} {{other}} {_MACHINE} --json",
    f"export {{file}} {_MACHINE} --to megatron-lm",
    f"export {{file}} {_MACHINE} --to nanotron",
    f"plan {{file}} {_MACHINE} --fix parallelism --fix training --audit 0 --jobs 1 --emit megatron-lm --json",
)
_SIXTEEN = tuple(command.replace(_MACHINE, f"{_MACHINE} --given gpus=16") for command in _FRAMEWORK)
_MODEL = f"{_MACHINE} --given gpus=16 --given model=llama3-8b --given seq_length=2048"
_NO_MODEL = tuple(command.replace(_MACHINE, _MODEL) for command in _FRAMEWORK)

COMMANDS: dict[str, tuple[str, ...]] = {
    "step.yaml": (
        *_RUNS,
        "run {beside} --json --placements 1",
        "run {file} --json --fault 'checkpoint_write job at=1ms'",
    ),
    "experts.yaml": _RUNS,
    "sharded.yaml": _RUNS,
    "weeks.yaml": _WEEKS,
    "faults-of-step.yaml": (*_RUNS[:3], *_WEEKS),
    "own.profile.yaml": _PROFILES,
    "graph.yaml": ("cluster {graph} --json", "cluster {graph} --svg {svg}", "run {graph} --json"),
    "graph.graphml": ("cluster {graph} --json", "cluster {graph} --svg {svg}", "run {graph} --json"),
    "llama.json": ("run {model} --json", "memory {model} --json"),
    "qwen.json": ("run {model} --json", "memory {model} --json"),
    "gpt2.json": ("run {model} --json", "memory {model} --json"),
    "counts.json": ("run {routing} --json",),
    "speeds.csv": ("run {speeds} --json",),
    "nccl.txt": _LOGS,
    "kernels.csv": _TABLES,
    "collectives.csv": _TABLES,
    "kernels.yaml": ("validate --kernels {file} --json", "validate --kernels {file} --leave-out"),
    "cases.yaml": (
        "validate {file} --jobs 1 --json",
        "validate {file} {other} --jobs 1 --markdown {md} --svg {svg}",
    ),
    "torch.json": (*_FITS, "explain {file} --json", "explain {file} {other} --waterfall {svg}"),
    "nsight.sqlite": (*_FITS, "explain {file} --json", "explain {file}"),
    "operations.csv": (
        "stragglers {file} --json",
        "stragglers {file} --heat-map {svg}",
        "explain {file} --json",
    ),
    "events.csv": ("faults {weeks} --json", "faults {weeks} --events {csv}"),
    "schedule.csv": ("schedule {file} --json", "schedule {file} --svg {svg}", "run {scheduled} --json"),
    "train.sh": _FRAMEWORK,
    "titan.toml": _SIXTEEN,
    "nanotron.yaml": _FRAMEWORK,
    "deepspeed.json": _NO_MODEL,
    "record.json": (
        "faults --record {file} --hosts 8 --json",
        "faults --record {file}",
    ),
    "host.json": ("replay {file} --cluster llama3-8b-h100 --json", "replay {file} --json"),
    "rank.0.et": (
        "replay {file} --json",
        "replay {file} --cluster llama3-8b-h100 --json",
        "replay {file} --cluster llama3-8b-h100 --kernels flops",
    ),
    "program.json": (
        "replay {file} --json",
        "replay {file}",
        "replay {file} --trace {json} --spans {csv} --timeline {svg}",
    ),
}
"""By the name of a file of the corpus."""


@dataclass(frozen=True, kw_only=True)
class Seed:
    """A valid file: its bytes, its ``document`` where it is YAML or JSON, and the commands that read it."""

    file: str
    commands: tuple[str, ...]
    content: bytes
    document: Any = None


def seed_with(file: str, content: bytes) -> Seed:
    """The file of that name, which holds ``content``."""
    document = None
    if file.endswith((".json", ".yaml")):
        document = json.loads(content) if file.endswith(".json") else yaml.safe_load(content)
    return Seed(file=file, commands=COMMANDS[file], content=content, document=document)


def whole(file: str) -> bytes:
    """A file of the corpus as it is valid."""
    if file.endswith(".sqlite"):
        return _database((FOLDER / file).with_suffix(".sql").read_text(encoding="utf-8"))
    if file == "faults-of-step.yaml":
        return (FOLDER / "step.yaml").read_bytes() + (FOLDER / file).read_bytes()
    return (FOLDER / file).read_bytes()


def document_of(file: str) -> dict[str, Any]:
    """A scenario of the corpus."""
    return dict(yaml.safe_load(whole(file)))


def written(document: Any, file: str) -> bytes:
    """``document`` as the text of a file of that name."""
    if file.endswith(".json"):
        return json.dumps(document, allow_nan=True).encode("utf-8", errors="surrogatepass")
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True).encode("utf-8", errors="replace")


def scenarios_around(file: str) -> dict[str, dict[str, Any]]:
    """Scenarios that read ``file`` through one of their fields, by what they are called in commands."""
    step, weeks = document_of("step.yaml"), document_of("weeks.yaml")
    flat = step | {"schedule": "none"}
    cluster = step["cluster"] | {"gpus": 4, "gpus_per_node": 2, "fabric": {"kind": "custom", "file": file}}
    experts = step["model"] | {"moe": {"num_experts": 8, "topk": 2, "expert_ffn_hidden_size": 512}}
    training = step["training"] | {"routing": {"kind": "counts", "file": file}}
    return {
        "graph": flat | {"cluster": cluster, "parallelism": {"tp": 2}},
        "model": step | {"model": f"./{file}"},
        "speeds": step | {"cluster": step["cluster"] | {"variation": {"gpu_speed": {"file": file}}}},
        "routing": flat | {"model": experts, "parallelism": {"ep": 4}, "training": training},
        "weeks": weeks | {"faults": weeks["faults"] | {"events": [{"trace": file}]}},
        "scheduled": step | {"schedule": file},
        "beside": step
        | {"cluster": step["cluster"] | {"neighbours": [{"scenario": f"./{file}", "hosts": [2, 3]}]}},
    }


def _database(statements: str) -> bytes:
    """What ``statements`` of SQL make, as the bytes of the file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "base.sqlite"
        base = sqlite3.connect(path)
        base.executescript(statements)
        base.close()
        return path.read_bytes()
