"""What a step computes and what each rank sends, in closed form: from model, layout and rules, not from ops.

The one place where the laws of test_composition.py find their sums. Sizes of shards and stages are the
plan's own (tests of their own hold them to the model); how often what is multiplied or moved is said
here once more. Sent are the bytes out of a rank: 2 (n-1)/n of an all-reduce's payload in n ranks, (n-1)/n
of a gather's, a scatter's or an exchange of heads, all of a message's. Of exchanges of tokens the payload
counts, since what of it leaves is the dispatcher's.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from small_scenarios import every_op, microbatches_of

from stepsim.sim.network.seat import payload_factor
from stepsim.sim.program.program import Collective, Compute, Exchange, Program
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.scenario.schedules import schedule_named
from stepsim.sim.step.layers.kinds import LayerKind, LayerRun
from stepsim.sim.step.lower import Lowered
from stepsim.sim.step.plan import Plan
from stepsim.sim.step.zero.rule import sharding_rule

FLASH_BACKWARD = 2.5  # S again, dV, dP, dQ, dK for two products forward (arXiv:2205.14135, algorithm 4)


# Counted -------------------------------------------------------------------------------------------------


def multiplied(program: Program) -> float:
    """FLOPs of the matrix products and attention of a rank."""
    return sum(
        count * op.work.flops
        for op, count in every_op(program)
        if isinstance(op.work, Compute) and op.work.kind in ("gemm", "attention")
    )


def sent(program: Program, plan: Plan) -> Counter[str]:
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


def _ranks(plan: Plan, communicator: str) -> int:
    groups = plan.groups
    seats: dict[str, Any] = {
        "cp.heads": groups.cp_heads, "cp.ring": groups.cp_ring,
        "fsdp": groups.shards, "hsdp": groups.replicas,
        "efsdp": groups.expert_shards, "ehsdp": groups.expert_replicas,
    }  # fmt: skip
    return int((seats.get(communicator) or getattr(groups, communicator)).ranks)


# FLOPs ---------------------------------------------------------------------------------------------------


def step_flops(run: Scenario, plan: Plan) -> float:
    """Of all ranks together: every token once through every layer, forward, backward, and again by rule."""
    layers = (run_ for stage in plan.stages for run_ in stage.runs)
    total = sum(layer.count * _layer_flops(run, layer) for layer in layers)
    head = 2.0 * _tokens(run) * run.model.hidden_size * run.model.vocab_size
    return total + 3 * head * (1 + run.model.mtp_layers)


def _tokens(run: Scenario) -> float:
    return float(run.training.global_batch * run.training.seq_length)


def _layer_flops(run: Scenario, layer: LayerRun) -> float:
    parts = _forward_flops(run, layer.kind)
    fused = run.software.attention != "unfused"
    core = parts.pop("core")
    matrices = sum(parts.values())
    again = layer.recompute
    total = 3 * matrices + core * (1 + (FLASH_BACKWARD if fused else 2.0))
    if "full" in again:
        return total + matrices + core
    total += core * ("core_attn" in again)
    total += parts.get("dense", 0.0) * ("mlp" in again)
    shared = parts.get("shared", 0.0)
    if "moe" in again:
        total += parts.get("router", 0.0) + parts.get("routed", 0.0) + shared
    else:
        total += shared * ("shared_experts" in again)
    total += parts.get("up", 0.0) * ("mla_up_proj" in again)
    if "operators" in again:  # K, the projection, the second branch
        h, keys = run.model.hidden_size, run.model.num_query_groups * run.model.kv_channels
        branch = run.model.ffn_hidden_size * (run.model.mlp == "swiglu")
        width = run.model.num_attention_heads * run.model.kv_channels
        total += 2.0 * _tokens(run) * h * (keys + width + branch)
    return total


def _forward_flops(run: Scenario, kind: LayerKind) -> dict[str, float]:
    """Of one layer, by part."""
    model, par, h = run.model, run.parallelism, run.model.hidden_size
    heads, gate = model.num_attention_heads, 2 if model.mlp == "swiglu" else 1
    each = 2.0 * _tokens(run)
    # What works on the residual stream alone is done by every TP rank where the stream is whole.
    alike = par.tp if par.tp > 1 and not par.sequence_parallel else 1
    found: dict[str, float] = {}
    if model.mla:
        mla = model.mla
        keys, values, rank = mla.qk_head_dim, mla.v_head_dim, mla.q_lora_rank
        found["down"] = each * h * ((rank or 0) + mla.kv_lora_rank + mla.qk_rope_head_dim) * alike
        found["up"] = each * heads * ((rank or 0) * keys + mla.kv_lora_rank * (mla.qk_nope_head_dim + values))
        found["queries"] = each * h * heads * keys * (rank is None)
    else:
        keys = values = model.kv_channels
        found["qkv"] = each * h * (heads + 2 * model.num_query_groups) * keys
    found["projection"] = each * heads * values * h
    found["core"] = each * run.training.seq_length * heads * (keys + values) * _visible(run, kind)
    if kind.prediction:
        found["joint"] = each * 2 * h * h
    if not (kind.experts and model.moe):
        return found | {"dense": each * h * model.ffn_hidden_size * (gate + 1)}
    found["router"] = each * h * model.moe.num_experts
    found["shared"] = each * h * model.moe.shared_expert_ffn_hidden_size * (gate + 1)
    return found | {"routed": _routed_flops(run, gate)}


def _visible(run: Scenario, kind: LayerKind) -> float:
    """Share of the square of scores that is computed."""
    if run.software.attention == "unfused":
        return 1.0
    reach = min(1.0, (kind.window or run.training.seq_length) / run.training.seq_length)
    return reach * (1 - reach / 2)


def _routed_flops(run: Scenario, gate: int) -> float:
    """Every rank's rows, in whole rows of each of its experts."""
    moe, par, h = run.model.moe, run.parallelism, run.model.hidden_size
    assert moe is not None
    held, row = moe.num_experts // par.ep, 2.0 * h * moe.expert_ffn_hidden_size / par.etp * (gate + 1)
    ranks = run.world_size // par.pp / par.ep
    rows = (
        sum(max(1, round(_rows(run, load) / held)) * held for load in expert_loads(run)) * ranks
    )  # of one microbatch
    return run.num_microbatches * rows * row


def expert_loads(run: Scenario) -> list[float]:
    """Rows of each place in an expert group over their mean."""
    moe, ep = run.model.moe, run.parallelism.ep
    assert moe is not None
    shares = [1.0] * moe.num_experts
    routing = run.training.routing
    if moe.capacity_factor is None and not isinstance(routing, str):
        if routing.kind == "zipf":
            shares = [(k + 1) ** -float(routing.exponent or 0.0) for k in range(moe.num_experts)]
        else:
            shares = [float(count) for count in COUNTS]
    mean, held = sum(shares) / len(shares), moe.num_experts // ep
    return [sum(shares[p * held : (p + 1) * held]) / held / mean for p in range(ep)]


COUNTS = (9, 4, 1, 2, 0, 8, 3, 5)
"""Tokens of each expert in the file of counts that compositions draw."""


def _rows(run: Scenario, load: float) -> float:
    """Rows of a rank's experts from one microbatch."""
    moe = run.model.moe
    assert moe is not None
    return _stream_tokens(run) * moe.topk * (moe.capacity_factor or 1.0) * run.parallelism.etp * load


def _stream_tokens(run: Scenario) -> float:
    """Tokens of one microbatch in a rank's residual stream."""
    par, training = run.parallelism, run.training
    whole = training.micro_batch * training.seq_length / par.cp
    return whole / par.tp if par.sequence_parallel else whole


# Bytes ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Passes:
    """Bytes of a layer or an end that a forward, and a backward, send."""

    forward: float = 0.0
    backward: float = 0.0

    def __add__(self, other: Passes) -> Passes:
        return Passes(forward=self.forward + other.forward, backward=self.backward + other.backward)

    def times(self, count: float) -> Passes:
        return Passes(forward=count * self.forward, backward=count * self.backward)

    @property
    def both(self) -> float:
        return self.forward + self.backward


def step_bytes(run: Scenario, plan: Plan, r: int, load: float) -> Counter[str]:
    """Bytes that a rank of pipeline rank ``r`` sends in a step, by axis, as ``sent`` counts them."""
    found: Counter[str] = Counter()
    for s, microbatches in microbatches_of(run, r).items():
        stage = plan.stages[s]
        for layer in stage.runs:
            again = layer.recompute
            for axis, one in _layer_bytes(run, plan, layer, load).items():
                found[axis] += microbatches * layer.count * one
            assert again <= KNOWN, again
        found["tp"] += microbatches * _ends(run, plan, s)
    found += _messages(run, plan, r)
    found += _data_parallel(run, plan, r)
    return Counter({name: size for name, size in found.items() if size})


KNOWN = {
    "full", "core_attn", "layernorm", "mlp", "moe", "moe_act", "shared_experts", "mla_up_proj", "operators"
}  # fmt: skip


def _layer_bytes(run: Scenario, plan: Plan, layer: LayerRun, load: float) -> dict[str, float]:
    full = "full" in layer.recompute
    tensor, again = _tensor(run, plan, layer)
    context = _context(run, plan)
    found = {
        "tp": tensor.both + again,
        "cp": context.both + context.forward * (full or "core_attn" in layer.recompute),
    }
    if layer.kind.experts:
        repeats = full or "moe" in layer.recompute
        exchanged, shared = _exchanged(run, plan), _shared_experts(run, load)
        found["ep"] = exchanged.both + exchanged.forward * repeats
        found["etp"] = shared.both + shared.forward * repeats
    return found


def _column(run: Scenario, plan: Plan, width: float, matrices: int = 1, *, plain: bool = False) -> Passes:
    """A column-parallel layer with so wide an input."""
    shard, f = plan.shard, (run.parallelism.tp - 1) / run.parallelism.tp
    moved = shard.tokens * width
    wire = shard.stored_bytes if not plain else shard.element_bytes
    if not shard.sequence_parallel:
        return Passes(backward=2 * f * moved * shard.element_bytes * matrices)
    again = f * moved * wire * run.software.sp_regathers_input
    return Passes(forward=f * moved * wire, backward=again + f * moved * shard.element_bytes)


def _row(run: Scenario, plan: Plan) -> Passes:
    """A row-parallel layer back to the residual stream."""
    shard, f = plan.shard, (run.parallelism.tp - 1) / run.parallelism.tp
    moved = shard.tokens * shard.hidden
    if not shard.sequence_parallel:
        return Passes(forward=2 * f * moved * shard.element_bytes)
    both = shard.recipe.gathered if shard.recipe else shard.element_bytes
    return Passes(forward=f * moved * shard.element_bytes, backward=f * moved * both)


def _tensor(run: Scenario, plan: Plan, layer: LayerRun) -> tuple[Passes, float]:
    """Tensor parallelism of a layer, and what running parts of it again adds."""
    model, h, kind = run.model, run.model.hidden_size, layer.kind
    row, column = _row(run, plan), _column(run, plan, h)
    branches = 2 if run.software.split_gate and model.mlp == "swiglu" else 1
    mlp = _column(run, plan, h, branches) + row
    up = Passes()
    whole = row
    if model.mla:
        rank, kv = model.mla.q_lora_rank, model.mla.kv_lora_rank + model.mla.qk_rope_head_dim
        up = _column(run, plan, kv) + (_column(run, plan, rank) if rank else Passes())
        whole += up + (Passes() if rank else column)
    else:
        whole += column
    if kind.prediction:
        stream = (run.parallelism.tp - 1) / run.parallelism.tp * plan.shard.hidden_bytes
        whole += _column(run, plan, 2 * h) + Passes(forward=stream, backward=stream)
    dense = mlp if not kind.experts else Passes()
    shared = mlp if kind.experts and model.moe and model.moe.shared_expert_ffn_hidden_size else Passes()
    whole += dense + shared
    again = layer.recompute
    if "full" in again:
        return whole, whole.forward
    twice = dense.forward * ("mlp" in again) + up.forward * ("mla_up_proj" in again)
    twice += shared.forward * bool({"moe", "shared_experts"} & again)
    if "operators" in again:
        twice += column.forward * (2 if model.mlp == "swiglu" else 1)
    return whole, twice


def _context(run: Scenario, plan: Plan) -> Passes:
    """Heads exchanged for tokens among ``a2a`` ranks, keys and values around rings of the others."""
    shard = plan.shard
    a2a, ring = shard.cp_a2a, shard.cp // shard.cp_a2a
    values = shard.value_dim or shard.head_dim
    heads = (a2a - 1) / a2a * shard.tokens * (shard.qkv_width + shard.attention_width) * shard.element_bytes
    kv = shard.tokens * a2a * max(1, shard.kv_heads // a2a) * (shard.head_dim + values) * shard.element_bytes
    # gathered: keys forward, keys and gradients backward; around a ring the same
    return Passes(forward=heads + (ring - 1) * kv, backward=heads + 2 * (ring - 1) * kv)


def _exchanged(run: Scenario, plan: Plan) -> Passes:
    """Payload of dispatch and combine, of the busiest rank, which all others wait for."""
    moe, shard = run.model.moe, plan.shard
    if moe is None or run.parallelism.ep == 1:
        return Passes()
    copies = moe.topk * (moe.capacity_factor or 1.0)
    if run.software.moe_dispatcher == "deepep":  # one copy, or as much more as capacity pads
        copies /= moe.topk
    rows = _stream_tokens(run) * copies * max(expert_loads(run)) * run.model.hidden_size
    out = shard.stored_bytes if run.software.fp8_dispatch else shard.element_bytes
    return Passes(forward=rows * (out + shard.element_bytes), backward=2 * rows * shard.element_bytes)


def _shared_experts(run: Scenario, load: float) -> Passes:
    """Rows gathered by the ranks that share an expert, and outputs scattered."""
    etp = run.parallelism.etp
    e = 4.0 if run.training.precision == "fp32" else 2.0
    rows = 2 * (etp - 1) / etp * _rows(run, load) * run.model.hidden_size * e
    return Passes(forward=rows, backward=rows)


def _ends(run: Scenario, plan: Plan, s: int) -> float:
    """TP at the ends of the model: the embedding, the head with its loss as often as it is passed."""
    stage, shard, software = plan.stages[s], plan.shard, run.software
    tp = run.parallelism.tp
    f, total, spread = (tp - 1) / tp, 0.0, shard.sequence_parallel
    if stage.embedding:
        total += 2 * f * shard.hidden_bytes  # reduced; or scattered, and gathered backward
    if stage.head:
        total += stage.heads * _column(run, plan, run.model.hidden_size, plain=True).both
    scalars = {"vocab-parallel": 3, "fused": 3, "eager": 3, "gathered": 0}[software.cross_entropy]
    loss = 2 * f * scalars * 4.0 * shard.tokens
    if software.cross_entropy == "gathered":
        loss = f * shard.tokens * shard.vocabulary * tp * shard.element_bytes
    assert spread or not shard.sequence_parallel
    return total + stage.losses * loss


def _messages(run: Scenario, plan: Plan, r: int) -> Counter[str]:
    """Activations to the next stage and gradients to the one before, unless that is on the same rank."""
    rank_of, shape, shard = schedule_named(run.schedule).rank_of, plan.shape, plan.shard
    sends = receives = 0
    for k in range(shape.microbatches):
        for s in range(shape.stages - 1):
            here, there = rank_of(s, k, shape), rank_of(s + 1, k, shape)
            if here != there:
                sends += (here == r) + (there == r)
                receives += (here == r) + (there == r)
    scattered = run.software.scatter_gather_p2p and not shard.sequence_parallel and shard.tp > 1
    size = shard.hidden_bytes / (shard.tp if shard.sequence_parallel or scattered else 1)
    gathered = receives * (shard.tp - 1) / shard.tp * shard.hidden_bytes if scattered else 0.0
    return Counter({"pp": sends * size, "tp": gathered})


# Data parallelism ----------------------------------------------------------------------------------------


def _data_parallel(run: Scenario, plan: Plan, r: int) -> Counter[str]:
    """Gradients, parameters, the tables at both ends, the norm, and what goes to the host."""
    groups, zero = plan.groups, run.parallelism.zero
    wire = run.software.reduce_grad_bytes or plan.shard.grad_bytes
    rule = sharding_rule(run) if groups.dp.ranks > 1 else None
    stages = plan.held_stages(r)
    held = plan.held_elements(r)
    found: Counter[str] = Counter()
    names = (("dp", "fsdp", "hsdp"), ("edp", "efsdp", "ehsdp"))
    seats = (
        (groups.dp.ranks, groups.shards.ranks, groups.replicas.ranks),
        (groups.edp.ranks, groups.expert_shards.ranks, groups.expert_replicas.ranks),
    )
    each = (rule and rule.reduces_each) or run.schedule == "pipedream"
    times = run.num_microbatches if each else 1
    own = 0.0
    for (whole, part, copies), (n, s, c), elements, gathered in zip(
        names, seats, (held.shared, held.experts), _gathered(run, plan, stages), strict=True
    ):
        shards = s if zero else 1
        own += elements / shards
        hybrid = shards > 1 and c > 1
        scatters = shards > 1 and (hybrid or rule is not None or run.software.zero1_reduce_scatters)
        first = part if groups.replicas.ranks > 1 and (hybrid or rule is not None) else whole
        if scatters:
            found[first] += times * elements * wire * (s - 1) / s
            found[copies] += times * elements * wire / s * 2 * (c - 1) / c
        else:
            late = copies if rule is not None and groups.replicas.ranks > 1 else whole
            found[late] += times * elements * wire * 2 * (n - 1) / n
        if shards > 1:
            found[first] += gathered * (s - 1) / s
    return found + _rest(run, plan, r, own, times * wire)


def _gathered(run: Scenario, plan: Plan, stages: list[int]) -> tuple[float, float]:
    """Bytes of parameters that a rank gathers in a step: shared ones, and experts."""
    rule = sharding_rule(run) if plan.groups.dp.ranks > 1 else None
    parameters = [plan.parameters[s] for s in stages]
    ends = sum(one.head + one.embedding for one in parameters)
    body = sum(one.elements.shared for one in parameters) - ends
    experts = sum(one.elements.experts for one in parameters)
    e, narrow, zero = plan.shard.element_bytes, plan.shard.weights.gathered, run.parallelism.zero
    if rule is None or rule.gathers == "never":  # updated parameters come back
        return ends * e + body * narrow, experts * narrow
    wire = run.software.gather_bytes or e
    sharding, m = run.software.sharding, run.num_microbatches
    pipelined = run.parallelism.pp > 1
    if sharding in ("deepspeed", "megatron-fsdp"):  # forward and backward of every microbatch
        return 2 * m * (ends + body) * wire, 2 * m * experts * wire
    reshard = run.software.reshard_after_forward
    lets_go = zero == 3 and (reshard == "always" or (reshard == "default" and not pipelined))
    forwards = 1 if pipelined and not lets_go else m
    back = m if lets_go else 0
    tables = 0.0  # of the ends, those that backward gathers again
    if sharding == "fsdp2":
        tables = (
            ends
            if reshard == "always"
            else sum(
                one.embedding for s, one in zip(stages, parameters, strict=True) if plan.stages[s].embedding
            )
        )
    return (forwards * (ends + body) + back * (body + tables)) * wire, (forwards + back) * experts * wire


def _rest(run: Scenario, plan: Plan, r: int, own: float, gradient_bytes: float) -> Counter[str]:
    found: Counter[str] = Counter()
    model, shard, training = run.model, plan.shard, run.training
    ends = {plan.rank_of(0), plan.rank_of(plan.shape.stages - 1)}
    if (model.tied_embeddings or model.mtp_layers) and not plan.ends_meet and r in ends:
        found["embedding"] = float(shard.vocabulary * shard.hidden * shard.grad_bytes)  # 2 (n-1)/n of two
    if plan.ends == "together":
        n = run.world_size
        found["world"] = 8.0 * 2 * (n - 1) / n
    if training.cpu_offload or training.nvme_offload:
        found["host"] = own * (gradient_bytes + shard.element_bytes)
    if training.activation_offload:  # the layers of each stage but its last, out and back
        for s, microbatches in microbatches_of(run, r).items():
            layers = [one for one in plan.stages[s].runs for _ in range(one.count)][:-1]
            kept = sum(_kept(plan, one) for one in layers)
            found["host"] += 2 * microbatches * kept
    return found


def _kept(plan: Plan, layer: LayerRun) -> float:
    from stepsim.sim.step.state.activations import activation_bytes

    return activation_bytes(plan.shard, plan.scenario.software).layer(layer).kept


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
