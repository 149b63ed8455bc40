"""What each rank sends inside layers and between stages, in closed form: TP, CP, EP and PP.

Sizes of shards and stages are the plan's own (tests of their own hold them to the model); how often what is
moved is said here once more. Sent are the bytes out of a rank: 2 (n-1)/n of an all-reduce's payload in n
ranks, (n-1)/n of a gather's, a scatter's or an exchange of heads, all of a message's. Of exchanges of tokens
the payload counts, since what of it leaves is the dispatcher's.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from composition_flops import expert_loads, expert_rows, gathers, parts_again, reads_rows, stream_tokens
from composition_sharding import data_parallel
from small_scenarios import microbatches_of

from stepsim.sim.lowering.layers.kinds import LayerRun
from stepsim.sim.lowering.plan import StepPlan
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.scenario.schedules import schedule_named


@dataclass(frozen=True, kw_only=True)
class Passes:
    """Bytes that a forward, and a backward, send."""

    forward: float = 0.0
    backward: float = 0.0

    def __add__(self, other: Passes) -> Passes:
        return Passes(forward=self.forward + other.forward, backward=self.backward + other.backward)

    @property
    def both(self) -> float:
        return self.forward + self.backward


def step_bytes(run: Scenario, plan: StepPlan, r: int, load: float) -> Counter[str]:
    """Bytes that a rank of pipeline rank ``r`` sends in a step, by axis; its experts have that ``load``."""
    found: Counter[str] = Counter()
    for s, microbatches in microbatches_of(run, r).items():
        for layer in plan.stages[s].runs:
            for axis, one in _layer_bytes(run, plan, layer, load).items():
                found[axis] += microbatches * layer.count * one
        found["tp"] += microbatches * _ends(run, plan, s)
        found["amax"] += microbatches * _maxima(run)
    found += _messages(run, plan, r)
    found += data_parallel(run, plan.of_load(load), r)
    return Counter({name: size for name, size in found.items() if size})


def _maxima(run: Scenario) -> float:
    """Of 8 bits with delayed scaling: an all-reduce of 512 B behind a chunk's forward and backward."""
    par, among = run.parallelism, run.software.exchange.amax_group
    if among == "none" or run.training.precision != "fp8" or run.software.kernels.fp8_scaling != "delayed":
        return 0.0
    ranks = par.tp * par.cp * (par.dp if among == "replicas" else 1)
    return 2 * 2 * (ranks - 1) / ranks * 512.0


def _layer_bytes(run: Scenario, plan: StepPlan, layer: LayerRun, load: float) -> dict[str, float]:
    context = _context(plan)
    found = {
        "tp": sum(one.both for one in _tensor(run, plan, layer).values()) + _tensor_again(run, plan, layer),
        "cp": context.both + context.forward * ("core" in parts_again(run, layer)),
    }
    if layer.kind.experts:
        found |= _experts(run, plan, layer, load)
        found["tp"] += _router_loss(run, layer)
    return found


def _router_loss(run: Scenario, layer: LayerRun) -> float:
    """Eight bytes an expert, added up over tp ranks where autograd records the router: once, whether in the
    forward or where all of it runs again, and once more where operators do."""
    moe, tp = run.model.moe, run.parallelism.tp
    if moe is None or not run.software.exchange.router_loss:
        return 0.0
    return (1 + ("operators" in layer.recompute)) * 2 * (tp - 1) / tp * 8.0 * moe.num_experts


# Tensor parallelism --------------------------------------------------------------------------------------


def _column(run: Scenario, plan: StepPlan, width: float, matrices: int = 1, *, plain: bool = False) -> Passes:
    """A column-parallel layer with so wide an input."""
    local, f = plan.local, (run.parallelism.tp - 1) / run.parallelism.tp
    moved, e = local.tokens * width, local.element_bytes
    if not local.sequence_parallel:
        return Passes(backward=2 * f * moved * e * matrices)
    gathered = f * moved * (e if plain else local.stored_bytes)
    return Passes(
        forward=gathered, backward=gathered * run.software.exchange.sp_regathers_input + f * moved * e
    )


def _row(run: Scenario, plan: StepPlan) -> Passes:
    """A row-parallel layer back to the residual stream."""
    local, f = plan.local, (run.parallelism.tp - 1) / run.parallelism.tp
    moved = f * local.tokens * local.hidden
    if not local.sequence_parallel:
        return Passes(forward=2 * moved * local.element_bytes)
    both = local.recipe.gathered if local.recipe else local.element_bytes
    return Passes(forward=moved * local.element_bytes, backward=moved * both)


def _tensor(run: Scenario, plan: StepPlan, layer: LayerRun) -> dict[str, Passes]:
    """Of a layer, by the GEMM that its traffic goes with; several on one input are named by the first."""
    model, h, kind = run.model, run.model.hidden_size, layer.kind
    found = {"projection": _row(run, plan)}
    if model.mla:
        mla = model.mla
        found["kv up"] = _column(run, plan, mla.kv_lora_rank + mla.qk_rope_head_dim)
        found["q up" if mla.q_lora_rank else "q"] = _column(run, plan, mla.q_lora_rank or h)
    else:
        found["q"] = _column(run, plan, h)
    if kind.prediction:
        stream = (run.parallelism.tp - 1) / run.parallelism.tp * plan.local.hidden_bytes
        found["joint"] = _column(run, plan, 2 * h) + Passes(forward=stream, backward=stream)
    if not kind.experts or (model.moe and model.moe.shared_expert_ffn_hidden_size):
        branches = 2 if run.software.kernels.split_gate and model.mlp == "swiglu" else 1
        found |= {"fc1 0": _column(run, plan, h, branches), "fc2": _row(run, plan)}
    elif gathers(run):  # before the router and behind the rows, and the reverse
        one = (run.parallelism.tp - 1) / run.parallelism.tp * plan.local.hidden_bytes
        found |= {
            "router": Passes(forward=one, backward=one),
            "routed fc2": Passes(forward=one, backward=one),
        }
    return found


def _tensor_again(run: Scenario, plan: StepPlan, layer: LayerRun) -> float:
    """What running parts of it again sends: inputs gathered for any of the GEMMs that share them."""
    again, sends = parts_again(run, layer), _tensor(run, plan, layer)
    together = {"q": {"q", "k", "v"}, "fc1 0": {"fc1 0", "fc1 1"}}
    names = {name for name in sends if again & together.get(name, {name})}
    if "operators" in layer.recompute:  # outputs of collectives have a list of their own
        names -= {"projection", "routed fc2"}
        names |= set() if "keep reduce_scatter" in layer.recompute else {"projection"}
    if "full" in layer.recompute and _home_is_left_out(run):
        names -= {"routed fc2"}
    return sum(sends[name].forward for name in names)


def _ends(run: Scenario, plan: StepPlan, s: int) -> float:
    """At the ends of the model: the embedding, the head with its loss as often as it is passed."""
    stage, local, tp = plan.stages[s], plan.local, run.parallelism.tp
    f, total = (tp - 1) / tp, 0.0
    if stage.embedding:
        total += 2 * f * local.hidden_bytes  # reduced; or scattered, and gathered backward
    total += stage.heads * _column(run, plan, run.model.hidden_size, plain=True).both
    loss = 2 * f * 3 * 4.0 * local.tokens  # maximum, target and sum, however many calls
    if run.software.kernels.cross_entropy == "gathered":
        loss = f * local.tokens * local.vocabulary * tp * local.element_bytes
    return total + stage.losses * loss


# Context and expert parallelism --------------------------------------------------------------------------


def _context(plan: StepPlan) -> Passes:
    """Heads exchanged for tokens among ``a2a`` ranks, keys and values around rings of the others."""
    local = plan.local
    a2a, ring, e = local.cp_a2a, local.cp // local.cp_a2a, local.element_bytes
    values = local.value_dim or local.head_dim
    heads = (a2a - 1) / a2a * local.tokens * (local.qkv_width + local.attention_width) * e
    kv = local.tokens * a2a * max(1, local.kv_heads // a2a) * (local.head_dim + values) * e
    if plan.scenario.software.exchange.cp_engine == "torch":
        # all heads of keys both ways; gradients in 32 bit go around until they are home
        whole = float(local.tokens * local.heads * (local.head_dim + values))
        there, home = (ring - 1) * whole * e, ring * whole * 4 if ring > 1 else 0.0
        return Passes(forward=heads + there, backward=heads + there + home)
    # gathered: keys forward, keys and gradients backward; around a ring the same
    return Passes(forward=heads + (ring - 1) * kv, backward=heads + 2 * (ring - 1) * kv)


def _experts(run: Scenario, plan: StepPlan, layer: LayerRun, load: float) -> dict[str, float]:
    """Exchanges of tokens and, among ranks that share experts, of rows; once more where these run again."""
    again = parts_again(run, layer)
    dispatched, combined, weights = _exchanged(run, plan)
    e, etp = plan.local.element_bytes, run.parallelism.etp
    shared = (etp - 1) / etp * expert_rows(run, load) * (not gathers(run))
    rows, rows_weights = shared * run.model.hidden_size * e, shared * _weight_bytes(run)
    counts = _counts(run)
    found = {"ep": counts + dispatched + 3 * combined + 2 * weights, "etp": 4 * rows + 2 * rows_weights}
    if "operators" in layer.recompute:  # which stops at the last input that backward reads
        at_home = reads_rows(run) and run.software.exchange.moe_dispatcher == "alltoall"
        sent_again = counts + dispatched + weights + (combined if at_home else 0.0)
        found["ep"] += 0.0 if "keep all_to_all" in layer.recompute else sent_again
        found["etp"] += (2 * rows if at_home else rows) + rows_weights
    elif "routed fc2" in again:
        back = 0.0 if "full" in layer.recompute and _home_is_left_out(run) else combined
        sent_again = counts + dispatched + weights + back
        return {"ep": found["ep"] + sent_again, "etp": found["etp"] + 2 * rows + rows_weights}
    return found


def _weight_bytes(run: Scenario) -> float:
    """Of the weight that travels beside a row, in FP32, where the experts' activation applies it."""
    software = run.software
    return (
        4.0
        if software.kernels.weighted_activation and software.exchange.moe_dispatcher == "alltoall"
        else 0.0
    )


def _home_is_left_out(run: Scenario) -> bool:
    """Whether a recomputation that stops early leaves out what brings rows home."""
    return run.software.kernels.recompute_stops_early and run.software.exchange.moe_dispatcher != "alltoall"


def _counts(run: Scenario) -> float:
    """Eight bytes an expert, told to all others before an all-to-all whose rows no capacity says."""
    moe, ep = run.model.moe, run.parallelism.ep
    if moe is None or moe.capacity_factor is not None or run.software.exchange.moe_dispatcher != "alltoall":
        return 0.0
    return 8.0 * moe.num_experts * (ep - 1)


def _exchanged(run: Scenario, plan: StepPlan) -> tuple[float, float, float]:
    """Payload of a dispatch, of a combine and of rows' weights, of the busiest rank, which all others wait
    for."""
    moe, local = run.model.moe, plan.local
    if moe is None or run.parallelism.ep == 1:
        return 0.0, 0.0, 0.0
    copies = moe.topk * (moe.capacity_factor or 1.0)
    if run.software.exchange.moe_dispatcher != "alltoall":  # one copy, or as much more as capacity pads
        copies /= moe.topk
    copies *= run.parallelism.etp if gathers(run) else 1
    rows = stream_tokens(run) * copies * max(expert_loads(run))
    elements = rows * run.model.hidden_size
    out = local.stored_bytes if run.software.exchange.fp8_dispatch else local.element_bytes
    return elements * out, elements * local.element_bytes, rows * _weight_bytes(run)


# Pipeline parallelism ------------------------------------------------------------------------------------


def _messages(run: Scenario, plan: StepPlan, r: int) -> Counter[str]:
    """Activations to the next stage and gradients to the one before, unless that is on the same rank."""
    rank_of, shape, local = schedule_named(run.schedule).rank_of, plan.shape, plan.local
    crossings = 0  # of each, one way forward and the other way backward
    for k in range(shape.microbatches):
        for s in range(shape.stages - 1):
            here, there = rank_of(s, k, shape), rank_of(s + 1, k, shape)
            crossings += ((here == r) + (there == r)) * (here != there)
    scattered = run.software.pipeline.scatter_gather_p2p and not local.sequence_parallel and local.tp > 1
    size = local.hidden_bytes / (local.tp if local.sequence_parallel or scattered else 1)
    gathered = crossings * (local.tp - 1) / local.tp * local.hidden_bytes if scattered else 0.0
    return Counter({"pp": crossings * size, "tp": gathered})
