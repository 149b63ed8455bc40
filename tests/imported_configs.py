"""Published configurations of other frameworks, from the shared data: which there are, and what a user
would give.

Facts that a file does not hold come from its row of index.csv: GPUs, their type, sizes that a launcher
overrides.
The network of a GPU type is that of the machine that its makers sell or the cloud names (``NETWORKS``). What
neither holds is assumed, and said to be so (``ASSUMED``).
"""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from stepsim.sim.scenario.errors import ScenarioError
from stepsim.sim.scenario.importers.draft import Imported
from stepsim.sim.scenario.importers.entry import import_files
from stepsim.sim.scenario.load import scenario_from_document
from stepsim.sim.scenario.models import Scenario

SHARED = Path(os.environ.get("STEPSIM_SHARED", Path(__file__).parents[2] / "shared"))
CONFIGS = SHARED / "data" / "configs"

GPUS = {
    "H100": "H100-SXM5-80GB", "H200": "H200-SXM-141GB", "A100": "A100-SXM4-80GB",
    "A100 80GB": "A100-SXM4-80GB", "A100_80GB": "A100-SXM4-80GB",
    "A100_40GB": "A100-SXM4-40GB", "H100_80GB": "H100-SXM5-80GB",
    "H100 96GB HBM2e 500W": "H100-SXM-HBM2e-96GB-500W",
    "A100 40GB": "A100-SXM4-40GB", "B200": "B200-SXM-180GB", "B300": "B300-SXM", "GB200": "GB200-NVL72",
    "GB300": "GB300-NVL72", "MI300X": "MI300X", "H100 80GB": "H100-SXM5-80GB",
}  # fmt: skip
NETWORKS = {
    "H100-SXM5-80GB": "ib-ndr400-x8", "H200-SXM-141GB": "ib-ndr400-x8", "A100-SXM4-80GB": "ib-hdr200-x8",
    "A100-SXM4-40GB": "ib-hdr200-x8", "B200-SXM-180GB": "ib-ndr400-x8", "B300-SXM": "ib-xdr800-x8",
    "GB200-NVL72": "ib-ndr400-x4", "GB300-NVL72": "ib-xdr800-x4", "MI300X": "roce-400-x8",
    "H100-SXM-HBM2e-96GB-500W": "roce-400-x8",
}  # fmt: skip
ASSUMED = {
    "gpus": "8", "gpu": "H100-SXM5-80GB", "vocab_size": "128256", "nnodes": "8", "model": "llama3-8b",
    "seq_length": "2048",
    "train_micro_batch_size_per_gpu": "1", "micro_batch_size": "1", "bf16": "true",
    "global_batch_size": "2048",
    "pp_partition_method": "type:transformer|embedding", "per_device_train_batch_size": "1",
    "activation_checkpointing": "true",
    "device_train_microbatch_size": "1", "train_batch_size": "2048",
    "compute_dtype": "bf16", "tensor_model_parallel_size": "8", "pipeline_model_parallel_size": "1",
    "num_gpus": "64",
}  # fmt: skip
"""What stands in for facts that neither file nor index has, to see whether the file itself can be read."""

IN_ROW = {
    "global_batch_size": "global_batch", "micro_batch_size": "micro_batch", "seq_length": "seq_length",
    "per_device_train_batch_size": "micro_batch", "train_micro_batch_size_per_gpu": "micro_batch",
    "device_train_microbatch_size": "micro_batch",
}  # fmt: skip
"""Columns of the index that hold a fact, where they hold one number."""


@dataclass(frozen=True, kw_only=True)
class Published:
    """One row of the index, or one list of arguments."""

    framework: str
    file: str
    row: dict[str, str]
    record: dict[str, Any] | None = None

    @property
    def version(self) -> str | None:
        """The revision in the path, where it is a release."""
        found = re.search(r"@([^/]+)/", self.file)
        told = found[1] if found else ""
        if self.framework == "megatron-lm":
            ours = "NVIDIA__Megatron-LM" in self.file
            return (
                (told if re.match(r"v\d|core_|2\d\.", told) else "HEAD")
                if ours
                else "HEAD"
                if self.record is None
                else None
            )
        return told if self.framework == "torchtitan" and "pytorch__torchtitan" in self.file else None


@dataclass(kw_only=True)
class Outcome:
    """How the import of one ended; ``assumed`` are facts that stood in for missing ones."""

    published: Published
    imported: Imported | None = None
    scenario: Scenario | None = None
    reasons: list[str] = field(default_factory=list)
    assumed: list[str] = field(default_factory=list)
    defect: bool = False


@cache
def all_published() -> tuple[Published, ...]:
    """Every row whose file is there, then every list of arguments."""
    with (CONFIGS / "index.csv").open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    there = [
        Published(framework=row["framework"], file=row["file"], row=row)
        for row in rows
        if (CONFIGS / row["file"]).is_file()
    ]
    by_file: dict[str, dict[str, str]] = {}
    for row in rows:
        by_file.setdefault(row["file"], row)
    records = [
        json.loads(line)
        for line in (CONFIGS / "launch_arguments.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    listed = [
        Published(framework=one["framework"], file=one["id"], row=by_file.get(one["id"], {}), record=one)
        for one in records
    ]
    by_id = {one.file: one for one in listed}
    more = [
        Published(framework=row["framework"], file=row["file"], row=row, record=by_id[row["file"]].record)
        for row in rows if row["file"] in by_id and row["published_figure"].strip()
    ]  # fmt: skip
    return (*there, *listed, *more)


def facts(one: Published) -> dict[str, str]:
    """What the row gives beside the file."""
    given = {}
    if re.fullmatch(r"\d+", one.row.get("gpus", "")):
        given["gpus"] = one.row["gpus"]
    elif found := re.search(r"(\d+)gpus", one.file):
        given["gpus"] = found[1]
    kind = one.row.get("gpu_type", "").strip()
    if kind:
        given["gpu"] = GPUS.get(kind, kind.replace(" ", "-"))
        given["interconnect"] = NETWORKS.get(given["gpu"], "ib-ndr400-x8")
    if one.framework == "megatron-bridge" and one.record is None:
        given["compute_dtype"] = "fp8_cs" if "FP8" in one.row.get("note", "") else "bf16"
    sizes = dict(re.findall(r"(\w+)=(-?\d+)", one.row.get("parallelism", "")))
    if "Megatron-MoE-ModelZoo" in one.file and one.record is None:
        layers = {"Qwen3-235B-A22B": 94, "DeepSeek-V3": 61}.get(one.row["model"], 0)
        given |= {
            "TP": sizes.get("tp", "1"),
            "PP": sizes.get("pp", "1"),
            "CP": sizes.get("cp", "1"),
            "EP": sizes.get("ep", "8"),
        }
        given |= {"MBS": _digits(one.row["micro_batch"], "1"), "GBS": _digits(one.row["global_batch"], "256")}
        given |= {
            "SEQ_LEN": _digits(one.row["seq_length"], "4096"),
            "VPP": sizes.get("vp", "1"),
            "MOE_GROUPED_GEMM": "true",
        }
        given["moe_token_dispatcher_type"] = "flex"
        given["LAYERS_PER_VP"] = str(max(1, (layers + 2) // (int(given["PP"]) * int(given["VPP"]))))
    return given


def _digits(text: str, default: str) -> str:
    return text if re.fullmatch(r"\d+", text) else default


def attempt(
    one: Published, folder: Path, extra: dict[str, str] | None = None, *, assume: bool = True
) -> Outcome:
    """Import it with the facts of its row, then with assumed ones where some are still asked for."""
    outcome = Outcome(published=one)
    path = CONFIGS / one.file
    if one.record is not None:
        path = folder / "arguments.json"
        path.write_text(json.dumps(one.record), encoding="utf-8")
    given = facts(one) | (extra or {})
    for _ in range(10):
        try:
            outcome.imported = import_files(
                [path], [f"{k}={v}" for k, v in given.items()], framework=_name(one), version=one.version
            )
            outcome.scenario = scenario_from_document(outcome.imported.document, "imported")
            outcome.reasons = []
            return outcome
        except ScenarioError as error:
            outcome.reasons = [f"{p.path}: {p.message}" for p in error.problems]
            asked = [p.path for p in error.problems if f"--given {p.path}=" in p.message]
            spare = [f"{p.path}" for p in error.problems if p.path.startswith("--given ")]
            for name in spare:
                given.pop(name.removeprefix("--given "), None)
            if not assume and not spare and "interconnect" not in asked:
                return outcome
            told = {n: one.row.get(IN_ROW[n], "") for n in asked if n in IN_ROW and n not in given}
            if known := {n: value for n, value in told.items() if value.isdigit()}:
                given |= known
                continue
            new = {n: ASSUMED[n] for n in asked if n in ASSUMED and n not in given}
            if "interconnect" in asked and "interconnect" not in given:
                new["interconnect"] = NETWORKS.get(given.get("gpu", ""), "ib-ndr400-x8")
            if not new and not spare and "gpus" in outcome.assumed and int(given["gpus"]) < 2048:
                given["gpus"] = str(2 * int(given["gpus"]))
                continue
            if not new and not spare:
                return outcome
            outcome.assumed += list(new)
            given |= new
        except ValueError as error:
            outcome.reasons = [str(error)]
            return outcome
        except Exception as error:  # a defect, to be counted
            outcome.reasons, outcome.defect = [f"DEFECT {type(error).__name__}: {error}"], True
            return outcome
    return outcome


def _name(one: Published) -> str | None:
    """Whose a list of arguments is: it names no script. Files are recognised."""
    return one.framework if one.record is not None else None


def tally(framework: str | None = None, folder: Path = Path("/tmp")) -> Iterator[Outcome]:
    """Every published configuration once: figures of one file apart are one file."""
    seen = set()
    for one in all_published():
        key = (one.file, one.record is not None)
        if key in seen or framework not in (None, one.framework):
            continue
        seen.add(key)
        yield attempt(one, folder)
