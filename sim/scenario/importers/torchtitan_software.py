"""What a torchtitan run recomputes, in which precision it computes, and what its options switch on.

Sources: pytorch/torchtitan torchtitan/config_manager.py at 9dec370 and v0.1.0; config/job_config.py and
models/llama3/infra/parallelize.py at v0.2.2; config/configs.py at b5bcd76.
"""

from __future__ import annotations

import re

from .settings import Settings
from .torchtitan_layout import DEFAULT

KEPT_BY_QWEN3 = ("every_second_mm", "attention", "reduce_scatter")
"""Operators whose outputs torchtitan keeps of Qwen3: _op_sac_save_list of models/qwen3/infra/parallelize.py
at 33d4f3b and 057fedd. The lists of Llama 4 and DeepSeek-V3 have the all-to-all too, since pull request 1672;
pull request 2357 of February 2026 made one list of all and removed the option."""


def put_recompute(settings: Settings) -> None:
    """Put what ``activation_checkpoint`` computes again."""
    draft = settings.draft
    mode = settings.choice(
        "activation_checkpoint.mode",
        among={"none": "none", "full": "full", "selective": "selective", "memory_budget": None},
        default="selective",
    )
    option = settings.text("activation_checkpoint.selective_ac_option", default="2")
    if mode is None:
        settings.refuse(
            "activation_checkpoint.mode",
            "memory_budget leaves the choice to the compiler, which is not modelled",
        )
    elif mode != "selective":
        settings.put("training.recompute", mode, "activation_checkpoint.mode", default=DEFAULT)
    elif option == "op":
        origin = settings.origin("activation_checkpoint.selective_ac_option")
        draft.put("training.recompute", _operators(settings), origin)
    elif option and re.fullmatch(r"[1-9]\d{0,3}", option):
        every = int(option)
        origin = settings.origin(
            "activation_checkpoint.selective_ac_option", default=f"{DEFAULT}: every second layer"
        )
        draft.put("training.recompute", "full" if every == 1 else {"kind": "full", "every": every}, origin)
    else:
        settings.refuse(
            "activation_checkpoint.selective_ac_option", "it is op, or a number of layers such as '2'"
        )


def _operators(settings: Settings) -> str | dict[str, object]:
    """What the list of the model keeps; one list for all models came when the option went."""
    if settings.text("model.name") != "qwen3" or (settings.draft.get("parallelism.ep") or 1) == 1:
        return "op_selective"
    settings.draft.note("selective_ac_option op: exchanges of tokens are not in the list of qwen3")
    return {"kind": "operators", "keep": list(KEPT_BY_QWEN3)}


def put_precision(settings: Settings) -> None:
    """Put the types of GEMMs, of gradients as they are reduced, and of weights."""
    kind = settings.choice(
        "training.mixed_precision_param", among={"bfloat16": "bf16", "float32": "fp32"}, default="bf16"
    )
    origin = settings.origin("training.mixed_precision_param", default=DEFAULT)
    width = settings.choice("training.mixed_precision_reduce", among={"float32": None, "bfloat16": 2})
    if width is not None:
        settings.draft.put_software(
            "reduce_grad_bytes", width, settings.origin("training.mixed_precision_reduce")
        )
    masters = settings.choice("training.dtype", among={"float32": None, "bfloat16": False})
    if masters is not None:  # trainer.py makes the model in it: weights, gradients and moments of 16 bit
        settings.draft.put_software("master_weights", masters, settings.origin("training.dtype"))
    listed = _converters(settings)
    if any("mx" in one for one in listed):
        kind, origin = "mxfp8", settings.origin("model.converters")
    elif any("float8" in one for one in listed) or settings.flag("float8.enable_float8_linear"):
        kind, origin = "fp8", settings.origin("model.converters", "float8.enable_float8_linear")
        _put_float8(settings)
    settings.draft.put("training.precision", kind, origin)
    if any("grouped_mm" in one for one in listed):
        settings.draft.note("experts' GEMMs are in the precision of the others here")


def _converters(settings: Settings) -> list[str]:
    """What the model's GEMMs are converted to; others than float8 and mx are refused."""
    told = settings.setting("model.converters")
    value = told.value if told else None
    listed = re.split(r"[,\s]+", value) if isinstance(value, str) else value
    names = [str(one) for one in listed] if isinstance(listed, list) else []
    if strange := [one for one in names if one not in _CONVERTERS]:
        settings.refuse("model.converters", f"{', '.join(strange)[:80]}: float8 and mx are modelled")
    return names


def _put_float8(settings: Settings) -> None:
    """How float8 scales, and whether FSDP gathers parameters in it."""
    recipe = settings.text("float8.recipe_name", "quantize.linear.float8.recipe_name")
    if recipe not in (None, "", "tensorwise"):
        settings.refuse("float8.recipe_name", f"{recipe}: tensorwise scaling is modelled")
    names = ("float8.enable_fsdp_float8_all_gather", "quantize.linear.float8.enable_fsdp_float8_all_gather")
    settings.put("software.kernels.fp8_parameters", settings.flag(*names), *names, default=f"{DEFAULT}: off")


_CONVERTERS = {
    "float8",
    "quantize.linear.float8",
    "mx",
    "quantize.linear.mx",
    "quantize.grouped_mm.float8",
    "quantize.grouped_mm.mx",
    "",
}


def put_software(settings: Settings, old: bool) -> None:
    """Put what is compiled, exchanged and fused; ``old``: torchtitan of 2024."""
    compiled = _put_compilation(settings, old)
    _put_early_stop(settings)
    _put_exchanges(settings, compiled)
    _put_forced_balance(settings)
    _refuse_others(settings)
    _put_optimizer(settings, old)


def _put_compilation(settings: Settings, old: bool) -> bool:
    draft = settings.draft
    compiled = settings.flag("compile.enable", "training.compile")
    origin = settings.origin("compile.enable", "training.compile", default=f"{DEFAULT}: off")
    told = settings.setting("compile.components")
    parts = (
        ["model", "loss"] if told is None else told.value if isinstance(told.value, list) else [told.value]
    )
    draft.put("software.kernels.torch_compile", compiled and "model" in parts, origin)
    if not old:
        loss = "compiled-torch" if compiled and "loss" in parts else "eager"
        draft.put("software.kernels.cross_entropy", loss, origin)
    return compiled


def _put_exchanges(settings: Settings, compiled: bool) -> None:
    draft = settings.draft
    names = (
        "parallelism.enable_async_tensor_parallel",
        "experimental.enable_async_tensor_parallel",
        "compile.enable_async_tensor_parallel",
    )
    wanted = settings.flag(*names)
    if draft.get("parallelism.tp", 1) > 1:
        if wanted and not compiled:
            settings.refuse(names[0], "it takes compilation beside it")
        settings.put("software.exchange.tp_comm_overlap", wanted, *names, default=f"{DEFAULT}: off")
    reshard = settings.choice(
        "parallelism.fsdp_reshard_after_forward",
        among={"default": "default", "always": "always", "never": "never"},
        default="default",
    )
    settings.put(
        "software.sharding.reshard_after_forward",
        reshard,
        "parallelism.fsdp_reshard_after_forward",
        default=DEFAULT,
    )
    rotate = tuple(f"{table}.context_parallel_rotate_method" for table in ("parallelism", "experimental"))
    method = settings.choice(
        *rotate, among={"allgather": "all_gather", "alltoall": "p2p"}, default="all_gather"
    )
    settings.put("software.exchange.cp_comm", method, *rotate, default=f"{DEFAULT}: allgather")


def _put_forced_balance(settings: Settings) -> None:
    """Put that experts are taken in turn (models/moe/moe.py, _debug_force_load_balance_routing).

    That is told of experts over ranks alone: others exchange nothing, and no rank waits for another's.
    """
    names = ("debug.moe_force_load_balance", "training.debug_moe_force_load_balance")
    if settings.flag(*names) and settings.draft.get("parallelism.ep", 1) > 1:
        settings.put("training.routing", "in_turn", *names)


def _refuse_gathered_logits(settings: Settings) -> None:
    """Losses of whole logits, where tensors are split; the first releases of 2024 say when they are not."""
    tp = settings.integer("parallelism.tensor_parallel_degree", "training.tensor_parallel_degree", default=1)
    why = "logits that are gathered are not modelled for torchtitan"
    for name in ("parallelism.disable_loss_parallel", "training.disable_loss_parallel"):
        if settings.flag(name) and tp != 1:
            settings.refuse(name, why)
    if not settings.flag("training.enable_loss_parallel", default=True) and tp != 1:
        settings.refuse("training.enable_loss_parallel", why)


def _refuse_others(settings: Settings) -> None:
    _refuse_gathered_logits(settings)
    for name in ("training.enable_cpu_offload", "experimental.enable_cpu_offload"):
        settings.refuse_if(name, "parameters and gradients on the host are not modelled for FSDP2")
    settings.refuse_if("optimizer.early_step_in_backward", "updates inside the backward are not modelled")


def _put_optimizer(settings: Settings, old: bool) -> None:
    draft = settings.draft
    ways = {way: way for way in ("fused", "foreach", "for-loop")}
    default = "foreach" if old else "fused"  # config_manager.py: fused from February 2025 on
    how = settings.choice("optimizer.implementation", among=ways, default=default)
    if settings.has("optimizer.fused"):  # of versions that had no implementation
        how = "fused" if settings.flag("optimizer.fused") else "foreach" if how == "fused" else how
    origin = settings.origin("optimizer.implementation", "optimizer.fused", default=DEFAULT)
    draft.put("software.kernels.optimizer_implementation", how, origin)
    name = settings.choice("optimizer.name", among={"adamw": None, "adam": None})
    if name:
        settings.put("training.optimizer.name", name, "optimizer.name")


def _put_early_stop(settings: Settings) -> None:
    """A compiled block has no use for the last GEMM, whatever the option says."""
    draft, name = settings.draft, "activation_checkpoint.early_stop"
    if settings.setting(name):
        stops = settings.flag(name) or draft.get("software.kernels.torch_compile", False)
        settings.put("software.kernels.recompute_stops_early", stops, name)
