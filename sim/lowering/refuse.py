"""What the simulator cannot express yet: refused by field, never ignored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..scenario.machine import gpu_of
from ..scenario.refusal import NotSupported
from ..scenario.schedules import schedule_named, schedule_names
from ..scenario.sharding import sharding_rule
from .common_to_layouts import runs_pairs
from .layers.checkpoints import layers_in_one_go
from .layers.local_shape import a2a_ranks
from .layers.precision import recipe_of
from .layers.recompute import FULL, by_operators, recomputed_parts
from .refuse_autocast import refuse_autocast
from .refuse_experts import (
    refuse_gathered_tokens,
    refuse_operators_of_experts,
    refuse_replayed_exchanges,
)
from .refuse_hosts import refuse_barrier, refuse_launches, refuse_partial_graphs
from .refuse_power import refuse_measured_products

if TYPE_CHECKING:
    from ...hardware.profile import GpuProfile
    from ...schedules.orders.schedule import Schedule
    from ..scenario.models import Scenario


BLOCK_SCALED = ("blackwell", "blackwell-rtx", "rubin", "cdna4")
"""Architectures whose GEMMs take blocks with a scale each (OCP MX)."""


@dataclass(frozen=True, kw_only=True)
class LayoutRefusal:
    """A rule that raises NotSupported: ``rule(scenario)``, or ``profile_rule(scenario, profile)`` where it
    depends on what was measured on the GPU. It ``reads`` these fields of a layout.

    ``concerns(scenario)`` says cheaply, from the fields ``concerned_by`` alone, whether the rule can refuse
    at all; each such rule asks that first.
    """

    rule: Callable[[Scenario], None] | None = None
    profile_rule: Callable[[Scenario, GpuProfile], None] | None = None
    reads: tuple[str, ...] = ()
    concerns: Callable[[Scenario], bool] | None = None
    concerned_by: tuple[str, ...] = ()

    def refuse(self, scenario: Scenario, profile: GpuProfile) -> None:
        """Raise NotSupported where ``scenario`` asks for what is not modelled."""
        if self.rule is not None:
            self.rule(scenario)
        if self.profile_rule is not None:
            self.profile_rule(scenario, profile)


def refuse_unsupported(scenario: Scenario, profile: GpuProfile) -> None:
    """Raise NotSupported for the first field that names something not modelled."""
    for one in REFUSALS:
        one.refuse(scenario, profile)


def _refuse_context(scenario: Scenario) -> None:
    """Refuse context parallelism that the attention kernel, or the heads of a rank, do not allow."""
    par = scenario.parallelism
    heads = scenario.model.num_attention_heads // par.tp
    if par.cp_a2a is None and scenario.software.exchange.cp_comm == "a2a" and heads % par.cp:
        raise NotSupported(
            "parallelism.cp",
            f"cp {par.cp} does not divide the {heads} heads of a TP rank, which a2a exchanges",
        )
    if par.cp > 1 and scenario.software.kernels.attention == "unfused":
        raise NotSupported(
            "parallelism.cp", f"cp {par.cp} needs a fused attention kernel; this one is unfused"
        )


def _refuse_documents(scenario: Scenario) -> None:
    """Refuse packs of documents where attention is to the whole sequence, or where the sequence is cut."""
    training, field = scenario.training, "training.document_length"
    if training.attended_length == training.seq_length:
        return
    if scenario.software.kernels.attention == "unfused":
        raise NotSupported(field, "unfused attention computes all scores and masks them; leave it out")
    if scenario.parallelism.cp > 1:
        raise NotSupported(field, "how context parallelism cuts documents is not modelled; leave it out")


def _refuse_precision(scenario: Scenario) -> None:
    """Refuse GEMMs of a type that the GPU does not have."""
    precision, gpu = scenario.training.precision, gpu_of(scenario.cluster)
    recipe = recipe_of(scenario, gpu.architecture)
    dtype = recipe.gemm_dtype if recipe else precision
    if not gpu.has_math(dtype):
        has = ", ".join(gpu.peak_flops)
        raise NotSupported("training.precision", f"{gpu.name} has no {dtype} GEMMs; it has {has}")
    if precision == "mxfp8" and gpu.architecture not in BLOCK_SCALED:
        wrong = f"{gpu.name} has no GEMMs of blocks with scales of their own, only fp8; set fp8"
        raise NotSupported("training.precision", wrong)
    if scenario.software.kernels.head_fp32 and not gpu.has_math("tf32"):
        raise NotSupported("software.kernels.head_fp32", f"{gpu.name} has no tf32 GEMMs; set it to false")


def _refuse_offload(scenario: Scenario) -> None:
    """Refuse state or activations on the host where the schedule has no place for their copies."""
    training, schedule = scenario.training, schedule_named(scenario.schedule)
    if schedule.weight_versions and training.offloads_state:
        field = "training.cpu_offload" if training.cpu_offload else "training.nvme_offload"
        raise NotSupported(
            field,
            f"{schedule.name} updates after every microbatch, on the GPU (its runtime/optimizer.py keeps "
            "versions of the weights there); set it to false",
        )
    if training.activation_offload and not _offloads(schedule):
        known = ", ".join(schedule_names(_offloads))
        raise NotSupported(
            "training.activation_offload",
            f"{scenario.schedule} splits backwards or overlaps them; known: {known}",
        )


def _refuse_masters(scenario: Scenario) -> None:
    """Refuse 16-bit weights without FP32 masters where the update is of FP32 in any case."""
    training, software = scenario.training, scenario.software
    if software.gradients.update_bytes(training.precision) == 4:
        return
    sharded = scenario.parallelism.zero >= 2 and software.sharding.implementation == "deepspeed"
    if sharded or software.gradients.wrapper == "deepspeed":
        why = "DeepSpeed updates FP32 partitions (runtime/zero/stage3.py, runtime/bf16_optimizer.py)"
    elif training.offloads_state:
        why = "the CPU updates FP32 weights (deepspeed/ops/adam/cpu_adam.py)"
    else:
        return
    raise NotSupported("software.gradients.master_weights", f"{why}; set it to true")


def _refuse_attention(scenario: Scenario, profile: GpuProfile) -> None:
    """Refuse attention kernels that nobody has measured on the GPU."""
    kernels = {curve.implementation for curve in profile.attention}
    attention = scenario.software.kernels.attention
    if attention != "unfused" and attention not in kernels:
        known = ", ".join(sorted(kernels | {"unfused"}))
        raise NotSupported(
            "software.kernels.attention", f"{profile.gpu} has no attention kernel {attention}; known: {known}"
        )


def _refuse_versions(scenario: Scenario) -> None:
    """Refuse sharded state under a schedule that updates after every microbatch."""
    if not _keeps_versions(scenario):
        return
    par, schedule = scenario.parallelism, schedule_named(scenario.schedule)
    same = par.tp * par.cp * par.dp // (par.ep * par.etp) if scenario.model.moe else 1
    if par.zero and max(par.dp * par.cp, same) > 1:
        raise NotSupported(
            "parallelism.zero",
            f"{schedule.name} updates after every microbatch, each replica of a stage all of its weights "
            f"(its runtime/optimizer.py); ZeRO-{par.zero} does not shard them; set it to 0",
        )


def _keeps_versions(scenario: Scenario) -> bool:
    return schedule_named(scenario.schedule).weight_versions is not None


def _offloads(schedule: Schedule) -> bool:
    """Whether its actions are whole forwards and backwards, one at a time, down the ranks and back."""
    return not (schedule.splits_backward or schedule.ends_meet)


def _refuse_shards(scenario: Scenario) -> None:
    """Refuse sharded state whose ranks never meet at the same point of their programs, or which no framework
    has.

    DualPipe's two copies of a stage run its microbatches at different moments, in different orders: what all
    of its ranks gather or reduce for each of them would wait for the other copy. DeepSeek-V3 reduces once,
    and shards the optimizer's state over both copies (ZeRO-1; arXiv:2412.19437 section 3.2).
    """
    if not _shards_apart(scenario):
        return
    par, schedule = scenario.parallelism, schedule_named(scenario.schedule)
    if schedule.two_way and par.zero > 1:
        raise NotSupported(
            "parallelism.zero",
            f"ZeRO-{par.zero} gathers or reduces every microbatch, but {schedule.name}'s two copies of a "
            "stage run them in different orders; known: 0, 1 (dualpipev has one copy, and takes 2 and 3)",
        )
    if par.fsdp_shard_size is None:
        return
    if schedule.two_way:
        raise NotSupported(
            "parallelism.fsdp_shard_size",
            f"{schedule.name}'s state is sharded over both copies of a stage, not over some ranks; "
            "leave it out",
        )
    copies = par.dp * par.cp // par.shard_ranks
    same = par.tp * par.cp * par.dp // (par.ep * par.etp)
    if scenario.model.moe and same % copies:
        # torchtitan parallel_dims.py: dp_shard * cp * tp must be a multiple of ep * etp; Megatron-LM
        # parallel_state.py: num_distributed_optimizer_instances must divide the expert data parallel size
        raise NotSupported(
            "parallelism.fsdp_shard_size",
            f"{par.fsdp_shard_size} leaves {copies} copies of the state, but {same} ranks hold the same"
            f" experts (tp * cp * dp / (ep * etp)), which is not a multiple of {copies}",
        )


def _shards_apart(scenario: Scenario) -> bool:
    """Whether some ranks hold copies of the state, of a stage or of its shards."""
    return schedule_named(scenario.schedule).two_way or scenario.parallelism.fsdp_shard_size is not None


def _refuse_optimizer(scenario: Scenario) -> None:
    """Refuse optimizers in layouts in which no framework runs them."""
    training, spec, software = scenario.training, scenario.training.optimizer, scenario.software
    zero = scenario.parallelism.zero
    row, field = spec.row, "training.optimizer"
    if training.offloads_state and not row.on_host:
        raise NotSupported(
            field, f"the CPU updates by Adam (deepspeed/ops/adam/cpu_adam.py), not by {row.name}; set adamw"
        )
    if schedule_named(scenario.schedule).weight_versions and (row.orthogonalizes or row.factors):
        raise NotSupported(
            field,
            f"{scenario.schedule} updates after every microbatch, which {row.name} is not made for; "
            "set adamw",
        )
    if row.orthogonalizes:
        _refuse_orthogonalizing(scenario)
    if not row.factors:
        return
    if scenario.parallelism.tp > 1:
        raise NotSupported(
            field,
            f"tp {scenario.parallelism.tp} cuts matrices whose rows and columns {row.name} sums; set tp 1",
        )
    sharding = software.sharding.implementation
    if zero and not (zero > 1 and sharding in ("fsdp2", "xla")):
        raise NotSupported(
            field,
            f"{row.name} sums rows and columns of matrices, which ZeRO-{zero} of {sharding} "
            "flattens and cuts anywhere; set zero to 0, or software.sharding to fsdp2 with zero 2 or 3",
        )


def _refuse_orthogonalizing(scenario: Scenario) -> None:
    """Refuse Muon in a precision or with sharded matrices that no framework runs it with."""
    par, spec, sharding = (
        scenario.parallelism,
        scenario.training.optimizer,
        scenario.software.sharding.implementation,
    )
    name, field, rule = spec.row.name, "training.optimizer", sharding_rule(scenario)
    if scenario.training.precision == "fp16":
        raise NotSupported(
            field, f"{name} runs in bf16 (Megatron-LM core/optimizer/muon.py); set precision bf16"
        )
    others = "set software.sharding to fsdp2, megatron-fsdp or distributed-optimizer"
    if rule and sharding == "fsdp1":
        raise NotSupported(field, f"fsdp1 flattens and cuts the matrices that {name} wants whole; {others}")
    if par.zero and sharding == "deepspeed":
        # It has one: stage_1_and_2.py (get_flat_partition) orthogonalises on every rank that holds a part
        # of a matrix, after an all-reduce (reduce_scatter false until July 2026); stage3.py gathers momenta.
        raise NotSupported(field, f"DeepSpeed's {name} under ZeRO-{par.zero} is not modelled; {others}")
    if spec.sharding and (par.zero == 0 or rule):
        what = "shards no state" if par.zero == 0 else "shards parameters, and their momentum with them"
        raise NotSupported(f"{field}.sharding", f"ZeRO-{par.zero} {what}; leave it out")
    if rule and par.tp > 1:
        # Megatron-LM fully_shard_v2_muon.py: tensor parallelism is of a later phase
        raise NotSupported(field, f"{name} of sharded parameters knows no tp {par.tp}; set tp or zero to 1")
    if par.fsdp_shard_size and spec.sharding != "gathered" and not rule:
        # Megatron-LM layer_wise_optimizer.py: num_distributed_optimizer_instances > 1 is not supported
        raise NotSupported(
            "parallelism.fsdp_shard_size",
            f"{name} gives whole matrices to all data-parallel ranks; leave it out, or set"
            " training.optimizer.sharding to gathered",
        )


def _refuse_layers(scenario: Scenario) -> None:
    """Refuse kinds of layers in layouts in which they are not modelled."""
    model, par = scenario.model, scenario.parallelism
    overlaps = runs_pairs(scenario)
    if overlaps and par.zero > 1 and scenario.software.sharding.implementation == "deepspeed":
        raise NotSupported(
            "software.exchange.moe_a2a_overlap",
            f"DeepSpeed's ZeRO-{par.zero} overlaps no exchanges; set it to false, or software.sharding to "
            "megatron-fsdp",
        )
    if overlaps and not schedule_named(scenario.schedule).overlaps:
        # Megatron-LM transformer_config.py: virtual stages are wanted where there is a pipeline. With one
        # chunk on a rank a forward waits for what runs beside it on the next one, and ranks take turns.
        known = ", ".join(schedule_names(lambda schedule: schedule.overlaps))
        raise NotSupported(
            "software.exchange.moe_a2a_overlap",
            f"{scenario.schedule} has no forward that could run beside a backward; set it to false, or "
            f"schedule to one of {known}",
        )
    heads = a2a_ranks(scenario)
    if model.sliding_window and heads < par.cp and scenario.software.exchange.cp_engine == "torch":
        raise NotSupported(
            "model.sliding_window",
            f"torch's context parallelism does not support windows (cp {par.cp}, of which {heads} exchange "
            "heads)",
        )
    if model.sliding_window and heads < par.cp and scenario.software.exchange.cp_comm != "all_gather":
        # TransformerEngine context_parallel.py: windows take cp_comm_type a2a or all_gather
        raise NotSupported(
            "model.sliding_window",
            f"a ring of keys and values does not support windows (cp {par.cp}, of which {heads} exchange "
            "heads); set software.exchange.cp_comm to a2a or all_gather",
        )


def _refuse_recomputation(scenario: Scenario) -> None:
    """Refuse to recompute modules that the model lacks, or other than plain layers by rules about these."""
    model, parts = scenario.model, recomputed_parts(scenario.training)
    rule = sharding_rule(scenario)
    if layers_in_one_go(scenario.training) > 1 and (
        (rule and rule.regathers) or scenario.training.activation_offload
    ):
        what = "activations on the host" if scenario.training.activation_offload else "ZeRO-3"
        raise NotSupported(
            "training.recompute.layers", f"several layers recomputed at once under {what}; set layers to 1"
        )
    there = {"core_attn", "layernorm", "mlp"}
    there |= {"moe", "moe_act"} if model.moe else set()
    there |= {"shared_experts"} if model.moe and model.moe.shared_expert_ffn_hidden_size else set()
    there |= {"mla_up_proj"} if model.mla else set()
    if not by_operators(parts) and (absent := parts - there - FULL):
        wrong, known = ", ".join(sorted(absent)), ", ".join(sorted(there))
        raise NotSupported(
            "training.recompute.modules", f"{wrong}: this model has none to recompute; it has {known}"
        )


_EXPERT_RANKS = tuple(f"parallelism.{axis}" for axis in ("tp", "cp", "dp", "ep", "etp"))
_SHARDING = ("parallelism.zero", "parallelism.pp")

REFUSALS = (
    LayoutRefusal(
        rule=_refuse_layers,
        reads=(
            "parallelism.ep",
            "parallelism.zero",
            "parallelism.cp",
            "parallelism.cp_a2a",
            "schedule",
            "software.exchange.moe_a2a_overlap",
        ),
    ),
    LayoutRefusal(
        rule=_refuse_recomputation,
        reads=(*_SHARDING, "training.recompute", "training.activation_offload"),
    ),
    LayoutRefusal(
        rule=refuse_launches,
        reads=(
            *_SHARDING,
            "software.gradients.overlap_grad_reduce",
            "software.gradients.overlap_param_gather",
            "software.exchange.tp_comm_overlap",
        ),
    ),
    LayoutRefusal(rule=refuse_operators_of_experts, reads=("parallelism.ep", "parallelism.etp")),
    LayoutRefusal(rule=refuse_gathered_tokens, reads=("parallelism.tp", "parallelism.etp")),
    LayoutRefusal(rule=refuse_replayed_exchanges, reads=("parallelism.ep", "training.recompute")),
    LayoutRefusal(rule=refuse_autocast, reads=(*_SHARDING, "parallelism.tp", "training.recompute")),
    LayoutRefusal(rule=refuse_partial_graphs),
    LayoutRefusal(rule=refuse_barrier),
    LayoutRefusal(rule=_refuse_context, reads=("parallelism.tp", "parallelism.cp", "parallelism.cp_a2a")),
    LayoutRefusal(
        rule=_refuse_shards,
        reads=(*_EXPERT_RANKS, "parallelism.zero", "parallelism.fsdp_shard_size", "schedule"),
        concerns=_shards_apart,
        concerned_by=("parallelism.fsdp_shard_size", "schedule"),
    ),
    LayoutRefusal(
        rule=_refuse_optimizer,
        reads=(*_SHARDING, "parallelism.tp", "parallelism.fsdp_shard_size", "schedule"),
    ),
    LayoutRefusal(rule=_refuse_documents, reads=("parallelism.cp",)),
    LayoutRefusal(rule=_refuse_precision),
    LayoutRefusal(profile_rule=refuse_measured_products),
    LayoutRefusal(rule=_refuse_offload, reads=("schedule", "training.activation_offload")),
    LayoutRefusal(rule=_refuse_masters, reads=("parallelism.zero",)),
    LayoutRefusal(profile_rule=_refuse_attention),
    LayoutRefusal(
        rule=_refuse_versions,
        reads=(*_EXPERT_RANKS, "parallelism.zero", "schedule"),
        concerns=_keeps_versions,
        concerned_by=("schedule",),
    ),
)
"""All refusals, in the order in which they are told."""
