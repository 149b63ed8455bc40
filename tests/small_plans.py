"""A job whose space of layouts is small enough to replay whole, and a planner's answer without its clock."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import yaml

from stepsim.sim.plan.search.layout_plan import LayoutPlan
from stepsim.sim.scenario.load import load_scenario
from stepsim.sim.scenario.models import Scenario

DOCUMENT: dict[str, Any] = {
    "name": "small",
    "model": {
        "num_layers": 8,
        "hidden_size": 1024,
        "num_attention_heads": 8,
        "ffn_hidden_size": 4096,
        "vocab_size": 32000,
        "mlp": "gelu",
    },
    "cluster": {"gpu": "A100-SXM4-80GB", "gpus": 8, "gpus_per_node": 8, "interconnect": "ib-hdr200-x8"},
    "parallelism": {"tp": 2, "pp": 2, "zero": 0},
    "training": {"global_batch": 32, "micro_batch": 2, "seq_length": 1024, "precision": "bf16"},
    "schedule": "1f1b",
    "software": {"preset": "megatron-2022-sp", "host": {"host_s_per_kernel": 6e-6}},
}

LARGE: dict[str, Any] = {
    **DOCUMENT,
    "model": {**DOCUMENT["model"], "num_layers": 64},
    "training": {**DOCUMENT["training"], "global_batch": 1024},
}
"""A job whose search takes seconds."""

FIX = {
    "parallelism.cp": 1,
    "parallelism.stage_split": "uniform",
    "parallelism.sequence_parallel": False,
    "training.recompute": "none",
}
"""What leaves some tens of layouts."""


FAULTS: dict[str, Any] = {
    "faults": {"processes": [{"kind": "gpu_fatal", "rate_per_unit_day": 0.5}]},
    "checkpoint": {"storage": {"every": "30 min", "mode": "blocking", "stall": "1 min", "load": "30 s"}},
    "recovery": {"spares": {"warm": 1, "cold": 1}},
    "run": {"horizon": "5 d"},
}


def small(**changes: Any) -> Scenario:
    """The job, with other fields by their dotted names with ``__`` for the dot."""
    return load_scenario(DOCUMENT, {name.replace("__", "."): value for name, value in changes.items()})


def answer(plan: LayoutPlan) -> dict[str, Any]:
    """All that a plan says but how long it took, and what a journal knew."""
    said = plan.to_dict()
    del said["timing"], said["remembered"]
    return said


def heeds_interrupts() -> None:
    """What a shell starts in the background ignores them."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def interrupted(folder: Path, *options: str, lines: int) -> tuple[Path, dict[str, Any], str]:
    """The plan of the large job, interrupted as Ctrl-C does it once its journal has ``lines`` lines.

    The signal reaches the process and its workers. Returns the scenario's file, the answer in JSON, and
    what was said beside it.
    """
    journal, scenario = folder / "plan.jsonl", folder / "large.yaml"
    scenario.write_text(yaml.safe_dump(LARGE), encoding="utf-8")
    command = [sys.executable, "-m", "stepsim.cli.main", "plan", str(scenario), "--json", "--top", "100"]
    with subprocess.Popen(
        [*command, *options, "--journal", str(journal)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=heeds_interrupts,
    ) as running:
        began = time.monotonic()
        while time.monotonic() - began < 300 and running.poll() is None:
            if journal.exists() and len(journal.read_text(encoding="utf-8").splitlines()) >= lines:
                break
            time.sleep(0.02)
        os.killpg(running.pid, signal.SIGINT)
        out, err = running.communicate(timeout=300)
    assert running.returncode == 130, err
    return scenario, json.loads(out), err
