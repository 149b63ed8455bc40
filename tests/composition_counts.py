"""What programs really multiply and send, op by op, in the words of the closed forms (composition_*.py)."""

from __future__ import annotations

from collections import Counter

from composition_flops import expert_loads
from small_scenarios import every_op

from stepsim.sim.lowering.lower import Lowered
from stepsim.sim.lowering.plan import StepPlan
from stepsim.sim.network.group_placement import payload_factor
from stepsim.sim.program.program import Collective, Compute, Exchange, Program


def multiplied(program: Program) -> float:
    """FLOPs of the GEMMs and attention of a rank."""
    return sum(
        count * op.work.flops
        for op, count in every_op(program)
        if isinstance(op.work, Compute) and op.work.kind in ("gemm", "attention")
    )


def sent(program: Program, plan: StepPlan) -> Counter[str]:
    """Bytes that a rank sends, by communicator; those of messages as ``pp``, of pieces of cp as ``cp``."""
    found: Counter[str] = Counter()
    for op, count in every_op(program):
        if isinstance(op.work, Exchange):
            found["pp"] += count * sum(part.transfer.bytes for part in op.work.parts if part.send)
        elif isinstance(op.work, Collective):
            name, work = op.work.communicator.split(" ")[0], op.work
            whole = work.kind in ("ring_step", "neighbours", "tokens", "copy", "update")
            share = 1.0 if whole else payload_factor(work.kind, _ranks(plan, name))
            found[name.split(".")[0]] += count * share * work.transfer.bytes
    return Counter({name: size for name, size in found.items() if size})


def _ranks(plan: StepPlan, communicator: str) -> int:
    return plan.groups[communicator].ranks


def class_of(step: Lowered, number: int) -> tuple[int, int, float]:
    """Of a class of programs: its pipeline rank, how many ranks run it, and their experts' load."""
    plan, run = step.plan, step.plan.scenario
    pp = plan.shape.ranks
    load = step.loads[number // pp]
    each = run.world_size // pp
    if run.model.moe is None or len(step.loads) == 1:
        return number % pp, each, load
    places = [one for one in expert_loads(run) if abs(one - load) < 1e-12]
    return number % pp, each * len(places) // run.parallelism.ep, load
