"""Calculon's time for a layout beside ours, in one process: the same layouts of the same two jobs.

    python benchmarks/calculon_beside.py DIR

``DIR`` is a checkout of github.com/calculon-ai/calculon (it is on no package index; that of the same name
there is another project), which this file imports and of which nothing is kept here. Prints a JSON object a
job: milliseconds of the processor for each of some hundred layouts by Calculon, and by our screening for each
of all.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from stepsim.sim.plan.screen.screen import screen
from stepsim.sim.plan.space import Space, space_of
from stepsim.sim.scenario.load import load_scenario
from stepsim.sim.scenario.models import Scenario

JOBS: dict[str, dict[str, Any]] = {
    "llama3-70b-h100": {"cluster.gpus": 128, "training.global_batch": 256},
    "gpt3-175b-h100": {"cluster.gpus": 1024, "training.global_batch": 1536},
}
COUNT = 200
SYSTEM = "systems/h100_80g_nvl8.json"
RECOMPUTE = {"none": "none", "selective": "attn_only", "full": "full"}
"""Their words for what runs again; what has none there is not drawn."""


def application(scenario: Scenario) -> dict[str, int]:
    """A model in Calculon's words (calculon/llm/llm.py, Llm.Application); it knows no groups of queries."""
    model = scenario.model
    return {
        "hidden": model.hidden_size,
        "feedforward": model.ffn_hidden_size,
        "seq_size": scenario.training.seq_length,
        "attn_heads": model.num_attention_heads,
        "attn_size": model.kv_channels,
        "num_blocks": model.num_layers,
    }


def execution(layout: Mapping[str, Any], scenario: Scenario) -> dict[str, Any]:
    """A layout in Calculon's words (Llm.Execution)."""
    tp, pp, dp = (int(layout[f"parallelism.{axis}"]) for axis in ("tp", "pp", "dp"))
    return {
        "num_procs": scenario.cluster.gpus,
        "tensor_par": tp,
        "pipeline_par": pp,
        "data_par": dp,
        "tensor_par_net": 0,
        "pipeline_par_net": 1,
        "data_par_net": 1,
        "batch_size": scenario.training.global_batch,
        "microbatch_size": int(layout["training.micro_batch"]),
        "datatype": "float16",
        "fused_activation": True,
        "attention_type": "multihead",
        "activation_recompute": RECOMPUTE[layout["training.recompute"]],
        "pipeline_interleaving": int(layout["parallelism.vpp"]),
        "optimizer_sharding": bool(layout["parallelism.zero"]) and dp > 1,
        "tensor_par_comm_type": "rs_ag" if layout["parallelism.sequence_parallel"] else "ar",
        "tensor_par_overlap": "none",
        "seq_par_ag_redo": False,
        "data_par_overlap": dp > 1,
        "weight_offload": False,
        "activations_offload": False,
        "optimizer_offload": False,
        "training": True,
    }


def drawn(space: Space, count: int) -> list[dict[str, Any]]:
    """So many layouts that Calculon has words for, the same ones every time."""
    columns = space.columns
    known = (columns["parallelism.cp"] == 1) & (columns["parallelism.zero"] <= 1)
    known &= columns["parallelism.stage_split"] == "uniform"
    known &= np.array([one in RECOMPUTE for one in map(_word, columns["training.recompute"])])
    there = np.flatnonzero(known).tolist()
    chosen = random.Random(0).sample(there, min(count, len(there)))
    return [{name: column[i] for name, column in columns.items()} for i in chosen]


def _word(recompute: object) -> str:
    return recompute if isinstance(recompute, str) else ""


def measured(folder: Path, name: str, count: int = COUNT) -> dict[str, Any]:
    """Milliseconds a layout of one job by both, and how many of Calculon's fit."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    from calculon.llm import Llm, System  # type: ignore[import-not-found,unused-ignore]

    scenario = load_scenario(name, JOBS[name])
    began = time.process_time()
    space = space_of(scenario)
    screen(space)
    ours_ms = 1e3 * (time.process_time() - began) / len(space)
    system = System(json.loads((folder / SYSTEM).read_text(encoding="utf-8")))
    app, log = Llm.Application(application(scenario)), logging.Logger("calculon")
    of = getattr(Llm.Execution, "from_json", Llm.Execution)
    theirs_ms, fit = [], 0
    for layout in drawn(space, count):
        began = time.process_time()
        try:
            model = Llm(app, log)
            model.compile(system, of(execution(layout, scenario)))
            model.run(system)
            fit += 1
        except Llm.Error:  # theirs for a layout that does not fit
            pass
        theirs_ms.append(1e3 * (time.process_time() - began))
    return {
        "scenario": name,
        "calculon_commit": commit_of(folder),
        "calculon_ms": statistics.median(theirs_ms),
        "calculon_layouts": len(theirs_ms),
        "calculon_fit": fit,
        "screening_ms": ours_ms,
        "screening_layouts": len(space),
    }


def commit_of(folder: Path) -> str:
    """The commit of the checkout and its date; "unknown" of a folder that is none."""
    command = ["git", "-C", str(folder), "log", "-1", "--format=%h of %cs"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else "unknown"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("folder", type=Path)
    options.add_argument("--count", type=int, default=COUNT)
    given = options.parse_args()
    if not (given.folder / SYSTEM).is_file():
        options.error(f"{given.folder} is not a checkout of Calculon: it has no {SYSTEM}")
    for name in JOBS:
        print(json.dumps(measured(given.folder.resolve(), name, given.count)), flush=True)


if __name__ == "__main__":
    main()
