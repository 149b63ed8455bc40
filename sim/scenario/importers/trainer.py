"""A run of transformers' Trainer: its model, sequence, precision and recomputation, by its arguments.

Sources: huggingface/transformers training_args.py; modeling_llama.py (kernels of plain torch);
modeling_utils.py (gradient_checkpointing_enable: not reentrant unless told since January 2026, pull request
43203); huggingface/accelerate utils/dataclasses.py; accelerator.py (prepare_model: autocast around what is
given, and what FSDP shards under mixed precision is made FP32).
"""

from __future__ import annotations

from ....hardware.files import FileError, load_json
from ..model.catalogue import get_model, model_names
from .layer_checkpoints import put_layer_checkpoints
from .liger import put_liger
from .model_facts import put_named_model
from .settings import Setting, Settings
from .sources import SourceFile

DEFAULT = "default of transformers"

REPLICAS = "huggingface-ddp"
"""What scenarios of replicas without shards call their software."""

FUSED = "adamw_torch_fused"
"""torch's AdamW with ``fused``, by the name that transformers has for it."""

_EAGER = ("fused_norm", "fused_activation", "fused_rope", "fused_residual", "fused_wgrad_accumulation")
"""Kernels that transformers' models run one by one, as torch has them."""


_LENGTHS = (
    "seq_length",
    "max_seq_length",
    "max_length",
    "block_size",
    "model_max_length",
    "sequence_len",
    "cutoff_len",
)
_ATTENTION = {
    "flash_attention_2": "fa2",
    "sdpa": "fa2",
    "eager": "unfused",
    "flash_attention_3": "fa3",
    "kernels-community/vllm-flash-attn3": "fa3",
}
_EXPERTS = {"grouped_mm": "torch", "eager": "loop"}


def put_trainer(settings: Settings, files: tuple[SourceFile, ...], precision: tuple[str, str] | None) -> None:
    """Put model, sequence length, precision, recomputation and kernels of a Trainer's run.

    ``precision`` is what another file says of it; None leaves it to the arguments.
    """
    draft = settings.draft
    _open_documents(settings)
    named = ("model_name_or_path", "model_name", "base_model")
    settings.text("model_type")
    settings.refuse_if(
        "config_overrides",
        "a model that overrides of a configuration describe is not read; give its config.json",
    )
    put_named_model(settings, settings.text(*named), settings.origin(*named), files)
    length = settings.integer(*_LENGTHS)
    if length is None and not settings.has(*_LENGTHS):
        draft.ask("seq_length", "the files do not say how long sequences are", "4096")
    settings.put("training.seq_length", length, *_LENGTHS)
    draft.put("training.precision", *(precision or _precision(settings)))
    _put_weights(settings)
    _put_recompute(settings)
    attention = settings.choice("attn_implementation", among=_ATTENTION, default="fa2")
    settings.put(
        "software.kernels.attention",
        attention,
        "attn_implementation",
        default=f"{DEFAULT}: torch's scaled_dot_product_attention",
    )
    for field in _EAGER:
        draft.put_software(field, False, "transformers' models are plain torch")
    draft.put("software.kernels.cross_entropy", "eager", "transformers' loss is torch's, on FP32 logits")
    _refuse_adapters(settings)
    origin = settings.origin("optim", default="the Trainer's default before torch 2.8, which made it fused")
    put_update(settings, settings.text("optim"), origin)
    _put_experts(settings)
    put_liger(settings)


def _open_documents(settings: Settings) -> None:
    """Take apart what a command line holds as JSON: ``--gradient_checkpointing_kwargs '{...}'``."""
    for name in ("gradient_checkpointing_kwargs", "liger_kernel_config"):
        told = settings.found.get(name)
        if told is None or not isinstance(told.value, str) or not told.value.strip().startswith("{"):
            continue
        try:
            inside = load_json(told.value, told.file)
        except FileError:
            told.refuse(settings.draft, "this is no JSON")
            continue
        settings.read.add(name)
        for key, value in inside.items():
            one = Setting(value=value, file=told.file, name=f"{told.name} {key}", line=told.line)
            settings.found[f"{name}.{key}"] = one


def _put_experts(settings: Settings) -> None:
    """Put how experts run: as Transformers does it from 5.0 on, unless ``experts_implementation`` says how. A
    compiler joins the operators, so that there are none by themselves.

    Source: transformers integrations/moe.py, ALL_EXPERTS_FUNCTIONS; docs/decisions/0210.
    """
    draft, name = settings.draft, "experts_implementation"
    how = settings.choice(name, among=_EXPERTS, default="torch")
    model = draft.get("model.preset")
    routed = get_model(model).moe if model in model_names() else draft.get("model.moe")
    if not routed or draft.get("software.kernels.torch_compile"):
        return
    default = f"{DEFAULT} from 5.0 on: a grouped GEMM"
    settings.put("software.kernels.expert_operators", how, name, default=default)
    draft.put_software("grouped_gemm", "stacked", "transformers' experts are one weight from 5.0 on")
    if not settings.has(name):
        draft.note(
            "experts run by one grouped GEMM, as in transformers from 5.0 on; before, they were a loop,"
            " several times slower: software.kernels.expert_operators: loop, and no grouped_gemm"
        )


def _precision(settings: Settings) -> tuple[str, str]:
    """The precision by the arguments, and where it stands; asked for where they are silent."""
    kind = "bf16" if settings.flag("bf16") else "fp16" if settings.flag("fp16") else None
    if kind is None and not settings.has("bf16", "fp16"):
        settings.draft.ask("bf16", "the files leave the precision to the Trainer's arguments", "true")
    return kind or "fp32", settings.origin("bf16", "fp16")


def _put_recompute(settings: Settings) -> None:
    put_layer_checkpoints(
        settings,
        ("gradient_checkpointing", "activation_checkpointing", "use_grad_checkpoint"),
        reentrant="gradient_checkpointing_kwargs.use_reentrant",
        unless_told=False,
        default=f"{DEFAULT} since January 2026",
    )


def _put_weights(settings: Settings) -> None:
    """Weights of replicas are what was loaded: of 16 bit they are updated so, and of 32 bit autocast casts
    them. FSDP's are made FP32 by accelerate, and DeepSpeed has FP32 ones of its own."""
    draft, dtype = settings.draft, (settings.text("torch_dtype") or "").rpartition(".")[2]
    replicas = draft.document.get("software", {}).get("name") == REPLICAS
    if replicas and dtype == "float32" and draft.get("training.precision") in ("bf16", "fp16"):
        settings.put("software.kernels.autocast", True, "torch_dtype")
    if dtype not in ("bfloat16", "float16"):
        return
    if replicas:
        settings.put("software.gradients.master_weights", False, "torch_dtype")
    else:
        draft.note("torch_dtype: sharded weights are kept in 32 bit, whatever type they are loaded in")


def _refuse_adapters(settings: Settings) -> None:
    """Adapters and quantised weights change memory and work completely."""
    for name in (
        "adapter",
        "use_peft",
        "lora_r",
        "use_peft_lora",
        "load_in_4bit",
        "load_in_8bit",
        "use_lora",
    ):
        settings.refuse_if(
            name, "adapters (LoRA, QLoRA) and quantised weights are not modelled; full training is"
        )
    if settings.text("optim") not in (None, "adamw_torch", FUSED, "adamw_hf", "adamw"):
        settings.refuse("optim", "adamw_torch and adamw_torch_fused are modelled here")


def put_update(settings: Settings, optimizer: str | None, origin: str) -> None:
    """Put who updates: Adam of DeepSpeed's JSON, which is a fused one of its own unless that says torch_adam,
    else torch's by the name ``optimizer``, which is foreach unless it is fused by name.

    Sources: deepspeed runtime/engine.py, _configure_basic_optimizer; transformers integrations/deepspeed.py,
    deepspeed_optim_sched (what the JSON has no optimizer for, the Trainer makes), and training_args.py,
    default_optim.
    """
    how = "fused" if optimizer == FUSED else "foreach"
    named = settings.found.get("optimizer.type")  # not read here: other_values.yaml knows which are told
    if named is not None:
        how = "foreach" if settings.flag("optimizer.params.torch_adam") else "fused"
        origin = settings.origin("optimizer.params.torch_adam", default=named.origin)
    settings.draft.put("software.kernels.optimizer_implementation", how, origin)
