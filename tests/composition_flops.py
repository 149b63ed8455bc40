"""What a step multiplies, in closed form: by model, batch and rules of recomputation, not by ops.

Every token passes every layer once forward; backward takes as much again for inputs and for weights, and
what is recomputed comes on top. Routed experts work in whole rows, so uneven routers are rounded as ranks do.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from stepsim.sim.lowering.layers.expert_operators import uses_torch_operators
from stepsim.sim.lowering.layers.kinds import LayerKind, LayerRun
from stepsim.sim.lowering.plan import StepPlan
from stepsim.sim.scenario.models import Scenario

FLASH_BACKWARD = 2.5  # S again, dV, dP, dQ, dK for two GEMMs forward (arXiv:2205.14135, algorithm 4)

MODULES = {
    "moe": {"router", "routed fc1", "routed fc2", "fc1 0", "fc1 1", "fc2"},
    "shared_experts": {"fc1 0", "fc1 1", "fc2"},
    "mlp": {"fc1 0", "fc1 1", "fc2"},
    "mla_up_proj": {"q up", "kv up"},
    "core_attn": {"core"},
    "layernorm": set(),
    "moe_act": set(),
}
"""Parts that a recomputed module runs again."""

UNCOUNTED = {"core", "router", "routed fc1", "routed fc2"}
"""Parts that are none of the GEMMs of which torchtitan recomputes every second."""


def step_flops(run: Scenario, plan: StepPlan) -> float:
    """Of all ranks together."""
    layers = [layer for stage in plan.stages for layer in stage.runs]
    assert sum(layer.count for layer in layers) == run.model.num_layers + run.model.mtp_layers
    total = sum(layer.count * _layer_flops(run, layer) for layer in layers)
    head = 2.0 * _tokens(run) * run.model.hidden_size * run.model.embedding_rows
    looked_up = 2 * head if run.software.kernels.one_hot_embedding else 0.0  # rows and the table's gradient
    return total + 3 * head * (1 + run.model.mtp_layers) + looked_up


def _tokens(run: Scenario) -> float:
    return float(run.training.global_batch * run.training.seq_length)


def _layer_flops(run: Scenario, layer: LayerRun) -> float:
    parts = forward_flops(run, layer.kind)
    core = parts["core"]
    backward = core * (FLASH_BACKWARD if run.software.kernels.attention != "unfused" else 2.0)
    matrices = sum(parts.values()) - core
    return 3 * matrices + core + backward + sum(parts[name] for name in parts_again(run, layer))


def parts_again(run: Scenario, layer: LayerRun) -> set[str]:
    """Names of the parts of a layer that backward runs again."""
    names, recompute = list(forward_flops(run, layer.kind)), layer.recompute
    if "full" in recompute:
        early = run.software.kernels.recompute_stops_early and not layer.kind.experts
        return set(names) - ({"fc2"} if early else set())
    if "operators" in recompute:
        fused = run.software.kernels.attention != "unfused"
        return _but_kept(names, recompute, fused=fused, rows_read=reads_rows(run))
    modules = recompute - ({"mlp"} if layer.kind.experts else {"moe", "shared_experts"})
    return {part for module in modules for part in MODULES[module]} & set(names)


def reads_rows(run: Scenario) -> bool:
    """Whether the backward of weighting the rows that experts give reads them, as torchtitan's does."""
    kernels = run.software.kernels
    dispatched = run.software.exchange.moe_dispatcher in ("alltoall", "deepep")
    return kernels.weighted_rows and dispatched and not uses_torch_operators(run.software)


def _but_kept(names: Iterable[str], recompute: frozenset[str], *, fused: bool, rows_read: bool) -> set[str]:
    """torch's selective checkpointing: all but what is kept, up to the last input that backward reads."""
    again = set(names) - {"fc2"} - (set() if rows_read else {"routed fc2"})
    counted = [name for name in names if name not in UNCOUNTED]
    if "keep mm" in recompute:
        again -= set(counted)
    if "keep every_second_mm" in recompute:
        again -= set(counted[::2])
    if "keep grouped_mm" in recompute:
        again -= {"routed fc1", "routed fc2"}
    return again - {"core"} if "keep attention" in recompute and fused else again


def forward_flops(run: Scenario, kind: LayerKind) -> dict[str, float]:
    """Of one layer, by part, in the order in which they run (routed experts before shared ones)."""
    model, h = run.model, run.model.hidden_size
    heads, each = model.num_attention_heads, 2.0 * _tokens(run)
    found: dict[str, float] = {"joint": each * 2 * h * h} if kind.prediction else {}
    found |= _latent_flops(run) if model.mla else {
        "q": each * h * heads * model.kv_channels,
        "k": each * h * model.num_query_groups * model.kv_channels,
        "v": each * h * model.num_query_groups * model.kv_channels,
    }  # fmt: skip
    keys = model.mla.qk_head_dim if model.mla else model.kv_channels
    values = model.mla.v_head_dim if model.mla else model.kv_channels
    found["core"] = each * run.training.seq_length * heads * (keys + values) * _visible(run, kind)
    found["projection"] = each * heads * values * h
    width = model.ffn_hidden_size
    if kind.experts and model.moe:
        found["router"] = each * h * model.moe.num_experts * (run.parallelism.tp if gathers(run) else 1)
        found |= _routed_flops(run)
        width = model.moe.shared_expert_ffn_hidden_size
    if width:
        branches = 2 if model.mlp == "swiglu" else 1
        found |= {f"fc1 {branch}": each * h * width for branch in range(branches)}
        found["fc2"] = each * h * width
    return found


def _latent_flops(run: Scenario) -> dict[str, float]:
    """Queries, keys and values by way of latents.

    What works on the residual stream alone is done by every TP rank where the stream is whole.
    """
    model, par, each = run.model, run.parallelism, 2.0 * _tokens(run)
    mla, h, heads = model.mla, model.hidden_size, model.num_attention_heads
    assert mla is not None
    alike = par.tp if par.tp > 1 and not par.sequence_parallel else 1
    queries, rank = heads * mla.qk_head_dim, mla.q_lora_rank
    found = {"q": each * h * queries}
    if rank:
        found = {"q down": each * h * rank * alike, "q up": each * rank * queries}
    down = h * (mla.kv_lora_rank + mla.qk_rope_head_dim) * alike
    up = mla.kv_lora_rank * heads * (mla.qk_nope_head_dim + mla.v_head_dim)
    return found | {"kv down": each * down, "kv up": each * up}


def _visible(run: Scenario, kind: LayerKind) -> float:
    """Share of the square of scores that is computed."""
    if run.software.kernels.attention == "unfused":
        return 1.0
    reach = min(1.0, (kind.window or run.training.seq_length) / run.training.seq_length)
    return reach * (1 - reach / 2)


# Experts -------------------------------------------------------------------------------------------------


def _routed_flops(run: Scenario) -> dict[str, float]:
    """Every rank's rows, in whole rows of each of its experts."""
    moe, par, h = run.model.moe, run.parallelism, run.model.hidden_size
    assert moe is not None
    held, width = moe.num_experts // par.ep, moe.expert_ffn_hidden_size / par.etp
    ranks = run.world_size // par.pp / par.ep
    rows = ranks * sum(max(1, round(expert_rows(run, load) / held)) * held for load in expert_loads(run))
    one = 2.0 * h * width * run.num_microbatches * rows
    return {"routed fc1": one * (2 if run.model.mlp == "swiglu" else 1), "routed fc2": one}


def gathers(run: Scenario) -> bool:
    """Whether experts gather the tokens of all tensor-parallel ranks before their router."""
    return run.software.exchange.experts_gather_tokens and run.parallelism.tp > 1


def expert_loads(run: Scenario) -> list[float]:
    """Rows of each place in an expert group over their mean."""
    moe, ep, routing = run.model.moe, run.parallelism.ep, run.training.routing
    assert moe is not None
    shares = [1.0] * moe.num_experts
    if moe.capacity_factor is None and not isinstance(routing, str):
        if routing.kind == "zipf":
            shares = [(k + 1) ** -float(routing.exponent or 0.0) for k in range(moe.num_experts)]
        else:
            shares = [float(count) for count in json.loads(Path(str(routing.file)).read_text())]
    mean, held = sum(shares) / len(shares), moe.num_experts // ep
    return [sum(shares[p * held : (p + 1) * held]) / held / mean for p in range(ep)]


def expert_rows(run: Scenario, load: float) -> float:
    """Rows of a rank's experts from one microbatch."""
    moe = run.model.moe
    assert moe is not None
    return stream_tokens(run) * moe.topk * (moe.capacity_factor or 1.0) * run.parallelism.etp * load


def stream_tokens(run: Scenario) -> float:
    """Tokens of one microbatch in a rank's residual stream."""
    par, training = run.parallelism, run.training
    whole = training.micro_batch * training.seq_length / par.cp
    return whole / par.tp if par.sequence_parallel else whole
