"""What was simulated, in one line each: the machine and the layout.

Knows the scenario's fields; the headline of the table and of the timeline are written here.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from ..figures import TIMES, count

if TYPE_CHECKING:
    from ..scenario.blocks import Training
    from ..scenario.models import Scenario


def headings(scenario: Scenario | None) -> tuple[str, ...]:
    """Title first, then what and how in a line each; without a scenario there is little to say.

    >>> headings(None)
    ('A program without a scenario',)
    """
    if scenario is None:
        return ("A program without a scenario",)
    lines = (subject(scenario), layout(scenario), batch(scenario))
    return (scenario.title, *lines) if scenario.title else lines


def subject(scenario: Scenario, varied: Collection[str] = ()) -> str:
    """``llama3.1-405b on 16,384 x H100-SXM5-80GB``, without what is ``varied``: that is no one number."""
    cluster = scenario.cluster
    if "cluster.gpu" in varied:
        machine = "" if "cluster.gpus" in varied else f"{count(cluster.gpus)} GPUs"
    else:
        many = "" if "cluster.gpus" in varied else f"{count(cluster.gpus)} {TIMES} "
        machine = f"{many}{cluster.gpu_name}"
    return f"{scenario.model.name} on {machine}" if machine else scenario.model.name


def layout(scenario: Scenario) -> str:
    """``TP 8 + SP · PP 16 x 8 chunks · DP 128 · ZeRO-1``; axes of size one are left out."""
    p = scenario.parallelism
    parts = [f"TP {p.tp}" + (" + SP" if p.sequence_parallel else "")] if p.tp > 1 else []
    parts += [f"{axis} {size}" for axis, size in (("CP", p.cp), ("EP", p.ep)) if size > 1]
    if p.pp > 1:
        parts.append(f"PP {p.pp}" + (f" {TIMES} {p.vpp} chunks" if p.vpp > 1 else ""))
    parts.append(f"DP {p.dp}")
    if p.zero:
        parts.append(f"ZeRO-{p.zero}")
    return " · ".join(parts)


def recomputed(training: Training) -> str:
    """What runs again, in few words: ``full``, ``full (block, 2 layers)``, ``modules``."""
    recompute = training.recompute
    if isinstance(recompute, str) or recompute.kind != "full":
        return recompute if isinstance(recompute, str) else recompute.kind
    if recompute.every:
        return f"full (every {recompute.every} layers)"
    layers = f"{recompute.layers} layer{'' if recompute.layers == 1 else 's'}"
    return f"full ({recompute.method}, {layers})" if recompute.method else f"full ({layers})"


def batch(scenario: Scenario) -> str:
    """``interleaved, 16 microbatches of 1 x 8,192 tokens in documents of 512, bf16, full recompute``."""
    training = scenario.training
    redone = "" if training.recompute == "none" else f", {recomputed(training)} recompute"
    schedule = "no pipeline" if scenario.schedule == "none" else Path(scenario.schedule).name
    number = scenario.num_microbatches
    plural = "" if number == 1 else "es"
    packed = training.attended_length < training.seq_length
    documents = f" in documents of {count(training.attended_length)}" if packed else ""
    return (
        f"{schedule}, {count(number)} microbatch{plural} of "
        f"{training.micro_batch} {TIMES} {count(training.seq_length)} tokens{documents}, "
        f"{training.precision}{redone}"
    )


def peers_title(name: str) -> str:
    """``DP peers``, ``the end of the step``."""
    return "the end of the step" if name == "step end" else f"{name[:2].upper()}{name[2:]}"
