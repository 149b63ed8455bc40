"""What each rank sends of gradients, parameters and state, in closed form: DP, ZeRO, hybrid shards, the host.

Elements are the plan's own; here is how often, in what type and over which ranks they travel.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from small_scenarios import microbatches_of

from stepsim.sim.lowering.plan import StepPlan
from stepsim.sim.lowering.state.activations import activation_bytes
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.scenario.sharding import ShardingRule, sharding_rule


def data_parallel(run: Scenario, plan: StepPlan, r: int) -> Counter[str]:
    """Gradients, parameters, the tables at both ends, the norm, and what goes to the host."""
    groups, held = plan.groups, plan.held_elements(r)
    dense = ("dp", "fsdp", "hsdp"), (groups["dp"].ranks, groups["fsdp"].ranks, groups["hsdp"].ranks)
    experts = (
        ("edp", "efsdp", "ehsdp"),
        (groups["edp"].ranks, groups["efsdp"].ranks, groups["ehsdp"].ranks),
    )
    gathered, gathered_experts = _gathered(run, plan, plan.held_stages(r))
    reduced = _reduced_bytes(run, plan)
    found = _moved(run, plan, *dense, reduced * held.shared, gathered)
    found += _moved(run, plan, *experts, reduced * held.experts, gathered_experts)
    shards, expert_shards = (dense[1][1], experts[1][1]) if run.parallelism.zero else (1, 1)
    own = held.shared / shards + held.experts / expert_shards
    return found + _rest(run, plan, r) + _to_host(run, plan, r, own, own * reduced)


def _rule(run: Scenario, plan: StepPlan) -> ShardingRule | None:
    """Of ZeRO-2 and -3, where there is anyone to shard with."""
    return sharding_rule(run) if plan.groups["dp"].ranks > 1 else None


def _reduced_bytes(run: Scenario, plan: StepPlan) -> float:
    """Bytes of an element's gradient on the wire, as often as a step reduces it."""
    rule, wire = _rule(run, plan), run.software.gradients.reduce_grad_bytes or plan.local.grad_bytes
    each = (rule and rule.reduces_each) or run.schedule == "pipedream"
    return float(wire * (run.num_microbatches if each else 1))


def _moved(
    run: Scenario,
    plan: StepPlan,
    names: tuple[str, str, str],
    ranks: tuple[int, int, int],
    reduced: float,
    gathered: float,
) -> Counter[str]:
    """Bytes in a group that holds the same parameters, in one that shards them, over equal shards."""
    (whole, part, copies), (n, s, c) = names, ranks
    rule, found = _rule(run, plan), Counter[str]()
    apart = plan.groups["hsdp"].ranks > 1  # groups of shards have names of their own
    shards = s if run.parallelism.zero else 1
    if shards == 1:
        found[copies if rule and apart else whole] = reduced * 2 * (n - 1) / n
        return found
    group = part if apart and (c > 1 or rule) else whole
    if c > 1 or rule or run.software.gradients.reduce_scatters(run.training.precision):
        found[group] = reduced * (s - 1) / s
        found[copies] = reduced / s * 2 * (c - 1) / c
    else:
        found[group] = reduced * 2 * (n - 1) / n
    broadcasts = run.software.gradients.zero1_broadcasts and run.parallelism.zero == 1
    found[group] += gathered if broadcasts else gathered * (s - 1) / s  # a broadcast passes all of it on
    return found


def _gathered(run: Scenario, plan: StepPlan, stages: Sequence[int]) -> tuple[float, float]:
    """Bytes of parameters that a rank gathers in a step: shared ones, and experts."""
    rule, parameters = _rule(run, plan), [plan.parameters[s] for s in stages]
    ends = sum(one.head + one.embedding for one in parameters)
    body = sum(one.elements.shared for one in parameters) - ends
    experts = sum(one.elements.experts for one in parameters)
    e, narrow, m = plan.local.element_bytes, plan.local.weights.gathered, run.num_microbatches
    if rule is None or rule.gathers == "never":  # updated parameters come back
        return ends * e + body * narrow, experts * narrow
    implementation = run.software.sharding.implementation
    if implementation in ("deepspeed", "megatron-fsdp"):  # forward and backward of every microbatch
        body *= _cast_first(plan, each_pass=True)
        experts *= _cast_first(plan, each_pass=True) if implementation == "megatron-fsdp" else e
        return 2 * m * (ends * e + body), 2 * m * experts
    pipelined, reshard = run.parallelism.pp > 1, run.software.sharding.reshard_after_forward
    default = reshard == "default" and not pipelined
    frees = run.parallelism.zero == 3 and (reshard == "always" or default)
    forwards, back = (1 if pipelined and not frees else m), (m if frees else 0)
    tables = 0.0  # of the ends, those that backward gathers again: fsdp1 keeps its root, others the head
    if implementation in ("fsdp2", "xla"):
        first = sum(plan.parameters[s].embedding for s in stages if plan.stages[s].embedding)
        tables = ends if reshard == "always" else first
    body *= _cast_first(plan, each_pass=frees)
    return forwards * (ends * e + body) + back * (body + tables * e), (forwards + back) * experts * e


def _cast_first(plan: StepPlan, *, each_pass: bool) -> float:
    """Bytes of a layer's weight that is gathered for ``each_pass``, or for both at once: its copies in the
    GEMMs' type, where these alone are kept, else 16 bits."""
    local = plan.local
    if local.recipe is None or not plan.scenario.software.kernels.fp8_parameters:
        return float(local.element_bytes)
    return local.recipe.stored * (2 if local.recipe.early and not each_pass else 1)


def _rest(run: Scenario, plan: StepPlan, r: int) -> Counter[str]:
    """The table that both ends hold, the norm of all gradients, a barrier; and both states of each loss that
    is logged, behind a barrier, from all ranks."""
    found: Counter[str] = Counter()
    model, local = run.model, plan.local
    ends = {plan.rank_of(0), plan.rank_of(plan.shape.stages - 1)}
    if (model.tied_embeddings or model.mtp_layers) and not plan.ends_meet and r in ends:
        found["embedding"] = float(local.vocabulary * local.hidden * local.grad_bytes)  # 2 (n-1)/n of two
    states = 2 * run.software.kernels.logged_losses
    numbers = 8.0 * (plan.ends == "together") + 4.0 * (run.software.host.step_barrier and not plan.skips)
    sent = (numbers + 4.0 * states) * 2 / run.world_size + 4.0 * states
    if sent and run.world_size > 1:
        found["world"] = sent * (run.world_size - 1)
    return found


def _to_host(run: Scenario, plan: StepPlan, r: int, own: float, gradient_bytes: float) -> Counter[str]:
    """Gradients out and parameters back; activations of the layers of each stage but its last both ways."""
    found: Counter[str] = Counter()
    training, sizes = run.training, activation_bytes(plan.local, run.software)
    if training.cpu_offload or training.nvme_offload:
        found["host"] = gradient_bytes + own * plan.local.element_bytes
    if training.activation_offload:
        for s, microbatches in microbatches_of(run, r).items():
            layers = [one for one in plan.stages[s].runs for _ in range(one.count)][:-1]
            found["host"] += 2 * microbatches * sum(sizes.layer(one).kept for one in layers)
    return found
