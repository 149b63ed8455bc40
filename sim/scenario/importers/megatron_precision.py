"""The widths in which a Megatron-LM run keeps weights, optimizer states and gradients and runs GEMMs, and how
it reduces gradients.

Sources: Megatron-LM megatron/training/arguments.py; core/distributed/distributed_data_parallel_config.py;
core/optimizer/optimizer_config.py; core/parallel_state.py, get_amax_reduction_group; TransformerEngine
pytorch/fp8.py, reduce_and_update_fp8_tensors (of delayed scaling alone, if the recipe has reduce_amax).
"""

from __future__ import annotations

from .megatron_model import DEFAULT
from .megatron_version import Megatron
from .settings import Settings

_RECIPES = {
    "delayed": ("fp8", "delayed"), "tensorwise": ("fp8", "current"), "blockwise": ("fp8", "blockwise"),
    "mxfp8": ("mxfp8", None), "custom": None,
}  # fmt: skip


def put_precision(settings: Settings) -> None:
    """Put the type of GEMMs, and how those of 8 and 4 bits are scaled."""
    draft = settings.draft
    half, brain = settings.flag("fp16"), settings.flag("bf16")
    if half and brain:
        settings.refuse("fp16", "fp16 and bf16 are both set; Megatron-LM takes one of them")
    kind = "fp16" if half else "bf16" if brain else "fp32"
    origin = settings.origin("fp16" if half else "bf16", default=DEFAULT)
    agreed, form = _amax_group(settings), settings.text("fp8_format", "fp8")
    if settings.flag("fp8_hybrid") or settings.flag("fp8_e4m3"):
        form = form or "hybrid"
    recipe = settings.choice("fp8_recipe", among=_RECIPES, default=("fp8", "delayed"))
    if form not in (None, "False", "false", "none", "null"):
        if recipe is None:
            settings.refuse("fp8_recipe", "a recipe of one's own is not modelled")
            return
        kind, scaling = recipe
        origin = settings.origin("fp8_format", "fp8", "fp8_hybrid", "fp8_e4m3")
        settings.put("software.kernels.fp8_scaling", scaling, "fp8_recipe", default=f"{DEFAULT}: delayed")
        if scaling == "delayed":
            draft.put("software.exchange.amax_group", *agreed)
        gathered = settings.flag("fp8_param_gather") or settings.flag("fp8_param")
        settings.put("software.kernels.fp8_parameters", gathered, "fp8_param_gather", default=DEFAULT)
        for name in ("first_last_layers_bf16", "num_layers_at_start_in_bf16", "num_layers_at_end_in_bf16"):
            if settings.has(name):
                draft.note(f"{name}: all layers run in FP8 here; keeping a few in 16 bit is not modelled")
    elif settings.has("fp8_param_gather"):
        settings.flag("fp8_param_gather"), settings.flag("fp8_param")
    if (four := settings.text("fp4_format", "fp4")) not in (None, "False", "none", "null"):
        if four != "e2m1":
            settings.refuse("fp4_format", f"{four}: e2m1 (NVFP4) is modelled")
        kind, origin = "nvfp4", settings.origin("fp4_format", "fp4")
    settings.text("fp4_recipe")
    draft.put("training.precision", kind, origin)


def _amax_group(settings: Settings) -> tuple[str, str]:
    """Who agrees on maxima under delayed scaling, and where that is said: all that hold the same weights,
    unless an option says those of tp and cp, or NeMo's own layers that nobody does (its recipe's reduce_amax;
    those of Megatron core have TransformerEngine's default).
    """
    within, core = settings.flag("tp_only_amax_red"), settings.flag("mcore_gpt")
    if not (settings.flag("reduce_amax", default=True) or core):
        return "none", settings.origin("reduce_amax")
    return "tensor" if within else "replicas", settings.origin("tp_only_amax_red", default=DEFAULT)


def put_optimizer(settings: Settings) -> None:
    """Put in which optimizer updates the parameters, and in how many bits it keeps its state."""
    _update_rule(settings)
    if settings.flag("use_precision_aware_optimizer"):
        _state_widths(settings)
        return
    # Without it the arguments are read, so that none is left over, and change nothing.
    for option in ("main_grads_dtype", "main_params_dtype", "exp_avg_dtype", "exp_avg_sq_dtype"):
        settings.text(option)


def _update_rule(settings: Settings) -> None:
    """The optimizer by name, and the options of Muon."""
    name = settings.choice(
        "optimizer",
        among={
            "adam": "adamw",
            "adamw": "adamw",
            "sgd": "sgd",
            "muon": "muon",
            "dist_muon": "muon",
            "lion": "lion",
        },
        default="adamw",
    )
    if name != "adamw":
        settings.put("training.optimizer.name", name, "optimizer")
    for field, option in (("ns_steps", "muon_num_ns_steps"), ("tp_mode", "muon_tp_mode")):
        value = settings.integer(option) if field == "ns_steps" else settings.text(option)
        if name == "muon" and value is not None:
            settings.put(f"training.optimizer.{field}", value, option)


def _state_widths(settings: Settings) -> None:
    """Bytes of the moments and of the main gradients under ``--use-precision-aware-optimizer``."""
    draft = settings.draft
    if settings.text("main_params_dtype", default="fp32") not in ("fp32", "float32"):
        settings.refuse("main_params_dtype", "master weights in fewer than 32 bits are not modelled")
    moments = {settings.text(one, default="fp32") for one in ("exp_avg_dtype", "exp_avg_sq_dtype")}
    widths = {"fp32": 4, "float32": 4, "bf16": 2, "bfloat16": 2, "fp16": 2, "float16": 2}
    if len(moments) > 1 or not moments <= widths.keys():
        settings.refuse(
            "exp_avg_dtype",
            f"moments in {' and '.join(sorted(map(str, moments)))} are not modelled: both in fp32, or both "
            f"in 16 bit",
        )
        return
    settings.put(
        "software.gradients.moment_bytes", widths[str(moments.pop())], "exp_avg_dtype", default=DEFAULT
    )
    if settings.text("main_grads_dtype", default="fp32") in ("bf16", "bfloat16"):
        draft.note("main_grads_dtype bf16: gradients are kept in 16 bit")
        settings.put("software.gradients.main_grad_bytes", 2, "main_grads_dtype")


def put_gradients(settings: Settings, megatron: Megatron) -> None:
    """Put in how many bits gradients are kept and reduced, when, and in which buckets."""
    _width(settings)
    _overlap(settings, megatron)
    _buckets(settings)
    if not settings.flag("gradient_accumulation_fusion", default=True) or settings.flag(
        "no_gradient_accumulation_fusion"
    ):
        settings.put(
            "software.kernels.fused_wgrad_accumulation",
            False,
            "no_gradient_accumulation_fusion",
            "gradient_accumulation_fusion",
        )
    for name in (
        "megatron_fsdp_grad_comm_dtype",
        "megatron_fsdp_main_grads_dtype",
        "megatron_fsdp_main_params_dtype",
    ):
        if (kind := settings.text(name)) not in (None, "fp32", "auto", "float32"):
            settings.refuse(
                name, f"{kind}: FSDP with other than 32-bit gradients and master weights is not modelled here"
            )


def _width(settings: Settings) -> None:
    draft, precision = settings.draft, settings.draft.get("training.precision")
    accumulates = settings.flag("accumulate_allreduce_grads_in_fp32")
    narrow = settings.flag("grad_reduce_in_bf16")
    if not draft.get("software.gradients.main_grad_bytes"):
        wide = precision == "fp32" or accumulates or (precision != "fp16" and not narrow)
        names = ("grad_reduce_in_bf16",) if narrow else ("accumulate_allreduce_grads_in_fp32",)
        settings.put(
            "software.gradients.main_grad_bytes",
            4 if wide else 2,
            *names,
            default=f"{DEFAULT}: {'32' if wide else '16'} bit under {precision}",
        )
    elif narrow:
        draft.note("grad_reduce_in_bf16 and main_grads_dtype say the same")


def _overlap(settings: Settings, megatron: Megatron) -> None:
    draft = settings.draft
    if megatron.version[0] == 2 or settings.has("ddp_impl"):
        overlaps = settings.choice("ddp_impl", among={"local": False, "torch": True}, default=False)
        settings.put(
            "software.gradients.overlap_grad_reduce",
            overlaps,
            "ddp_impl",
            default=f"{DEFAULT}: local, after the last backward",
        )
    if megatron.version < (4, 4) and not settings.has("overlap_grad_reduce"):
        return
    reduces = settings.flag("overlap_grad_reduce")
    gathers = settings.flag("overlap_param_gather")
    if gathers and not (draft.get("parallelism.zero") and reduces):
        settings.refuse(
            "overlap_param_gather",
            "it needs --use-distributed-optimizer and --overlap-grad-reduce",
        )
    for name, on in (("overlap_grad_reduce", reduces), ("overlap_param_gather", gathers)):
        settings.put(f"software.gradients.{name}", on, name, default=f"{DEFAULT}: off")


def _buckets(settings: Settings) -> None:
    draft = settings.draft
    if settings.flag("align_grad_reduce", default=True) is False or settings.flag("no_align_grad_reduce"):
        origin = settings.origin("no_align_grad_reduce", "align_grad_reduce")
        draft.put("software.gradients.reduction", "buckets", origin)
        draft.note("without align_grad_reduce, buckets are taken not to grow with data parallelism")
    if settings.has("ddp_bucket_size"):
        size = settings.number("ddp_bucket_size")
        settings.put("software.gradients.bucket_elements", size, "ddp_bucket_size")
