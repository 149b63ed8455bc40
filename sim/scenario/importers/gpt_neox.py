"""gpt-neox: its YAML files, merged (model, cluster, local setup); a key stands in one of them.

Source: EleutherAI/gpt-neox megatron/neox_arguments/neox_args.py, arguments.py,
megatron/tokenizer/tokenizer.py, megatron/model/transformer.py (ParallelMLP) at ea7aefd8.
"""

from __future__ import annotations

from typing import Any

from .cluster_facts import put_machine, world_size
from .deepspeed_json import batches_of, precision_of, put_batches, put_zero
from .draft import Draft, Imported
from .importer import Importer, ImportJob
from .leftovers import settle
from .settings import Settings
from .sources import SourceFile
from .vocabulary import vocabulary_of

DEFAULT = "default of gpt-neox"

_SIGNS = (
    "pipe_parallel_size",
    "pipe-parallel-size",
    "model_parallel_size",
    "model-parallel-size",
    "train_micro_batch_size_per_gpu",
    "gpt_j_residual",
    "vocab_file",
    "checkpoint_factor",
)


_FUSIONS = (
    (("scaled_upper_triang_masked_softmax_fusion", "scaled_masked_softmax_fusion"), "fused_softmax"),
    (("bias_gelu_fusion", "use_flashattn_swiglu"), "fused_activation"),
    (("bias_dropout_fusion",), "fused_residual"),
    (("rope_fusion",), "fused_rope"),
)
"""Kernels of gpt-neox by the options that switch them on; all are off by default (neox_args.py)."""


def _recognises(file: SourceFile) -> bool:
    return (
        file.kind in ("yaml", "json")
        and ("model" not in file.keys)
        and (
            bool(
                file.keys
                & {
                    "pipe_parallel_size",
                    "pipe-parallel-size",
                    "gpt_j_residual",
                    "gpt-j-residual",
                    "no_weight_tying",
                    "output_layer_parallelism",
                }
            )
            or {"vocab_file", "data_path", "tensorboard_dir"} <= {one.replace("-", "_") for one in file.keys}
            or {"train_data_paths", "vocab_file"} <= {one.replace("-", "_") for one in file.keys}
        )
    )


def read_neox(job: ImportJob) -> Imported:
    """The scenario of a gpt-neox run.

    Raises:
        ScenarioError: what is asked or refused.
    """
    draft = Draft(framework="gpt-neox", file=job.name, version=job.version or "ea7aefd8")
    settings = Settings(found={}, given=job.given, draft=draft)
    for file in job.files:
        for name, one in file.settings().items():
            if name in settings.found:
                draft.refuse(
                    name,
                    f"it stands in {settings.found[name].file} and in {file.name}; gpt-neox takes it once",
                )
            settings.found[name] = one
    draft.put("software.preset", "gpt-neox-2022", "gpt-neox: DeepSpeed's engine around Megatron's layers")
    draft.put("software.name", "gpt-neox", "no measured step of it has shaped a constant")
    gpus = world_size(settings, settings.setting("num_nodes"), settings.setting("num_gpus"))
    _model(settings)
    _layout(settings, gpus)
    put_machine(settings)
    settle(settings, "gpt-neox", "deepspeed-json")
    return draft.finished()


_SIZES = (
    ("num_layers", "model", "32"),
    ("hidden_size", "model", "4096"),
    ("num_attention_heads", "model", "32"),
    ("seq_length", "training", "2048"),
)
"""Settings that have no default, the block of a scenario that each belongs to, and an example."""

_MLPS = {
    "gelu": "gelu",
    "geglu": "swiglu",
    "reglu": "swiglu",
    "swiglu": "swiglu",
    "bilinear": "swiglu",
    "glu": "swiglu",
    "relu2": "relu2",
    "silu": "gelu",
    "relu": "gelu",
    "mish": "gelu",
    "selu": "gelu",
    "softsign": "gelu",
}
_NORMS = {
    "layernorm": "layernorm",
    "rmsnorm": "rmsnorm",
    "scalenorm": "rmsnorm",
    "te_rmsnorm": "rmsnorm",
    "te_layernorm": "layernorm",
}
_POSITIONS = {
    "rotary": "rope",
    "learned": "learned",
    "sinusoidal": "none",
    "rpe": "none",
    "alibi": "none",
    "none": "none",
}
_OPTIMIZERS = {
    "adam": None,
    "onebitadam": "none",
    "cpu_adam": None,
    "cpu_torch_adam": None,
    "sgd": "sgd",
    "lion": "lion",
    "sm3": "none",
    "madgrad_wd": "none",
}
"""Optimizers as those of a scenario: None is Adam, "none" is not modelled."""
_OTHER_ATTENTION = ("mamba", "rwkv", "sparse", "local", "bigbird", "gmlp")


def _model(settings: Settings) -> None:
    _sizes(settings)
    _kernels(settings)
    settings.refuse_if("moe_num_experts", "experts of gpt-neox are not read", harmless=(None, 0, 1))
    _mlp(settings)
    _layer(settings)
    _vocabulary(settings)


def _sizes(settings: Settings) -> None:
    draft = settings.draft
    for name, block, example in _SIZES:
        value = settings.integer(name)
        if value is None and not settings.has(name):
            draft.ask(name, "the files do not say it", example)
        settings.put(f"{block}.{name}", max(1, value or 1), name)


def _kernels(settings: Settings) -> None:
    draft = settings.draft
    kinds = settings.setting("attention_config")
    named = "" if kinds is None else str(kinds.value)
    if any(one in named for one in _OTHER_ATTENTION):
        settings.refuse("attention_config", "attention of other kinds than global and flash is not modelled")
    settings.put(
        "software.kernels.attention",
        "fa2" if "flash" in named else "unfused",
        "attention_config",
        default=f"{DEFAULT}: global",
    )
    for names, field in _FUSIONS:
        fused = sum(settings.flag(name) for name in names) > 0
        draft.put_software(field, fused, settings.origin(*names, default=f"{DEFAULT}: off"))


def _mlp(settings: Settings) -> None:
    """The MLP and its width: ParallelMLP scales so that gated activations have as many parameters."""
    draft = settings.draft
    hidden = draft.get("model.hidden_size")
    kind = settings.choice("activation", among=_MLPS, default="gelu")
    factor = settings.number("expansion_factor")
    wide = settings.integer("intermediate_size") or (int(factor * hidden) if factor else 4 * hidden)
    origin = settings.origin(
        "intermediate_size", "expansion_factor", default=f"{DEFAULT}: 4 times the hidden size"
    )
    multiple = max(1, settings.integer("mlp_multiple_of", default=1) or 1)
    if settings.choice("mlp_type", among={"regular": False, "llama": True}, default=False):
        # LLaMAParallelMLP of 2023 and 2024: two branches whatever the activation, in whole 256
        kind, wide = "swiglu", settings.integer("intermediate_size") or -(-int(8 * hidden / 3) // 256) * 256
        origin = settings.origin("intermediate_size", "mlp_type")
    elif kind == "swiglu":  # two thirds, halved
        wide = -(-(int(wide * 2 / 3) // 2) // multiple) * multiple
        origin = f"{origin}, of which a third in each branch"
    settings.put("model.mlp", kind, "mlp_type", "activation", default=DEFAULT)
    draft.put("model.ffn_hidden_size", wide, origin)


def _layer(settings: Settings) -> None:
    """What a layer has besides its MLP."""
    settings.put("model.num_query_groups", settings.integer("num_kv_heads"), "num_kv_heads")
    tied = not settings.flag("no_weight_tying")
    settings.put("model.tied_embeddings", tied, "no_weight_tying", default=DEFAULT)
    norm = settings.choice("norm", among=_NORMS, default="layernorm")
    settings.put("model.norm", norm, "norm", default=DEFAULT)
    position = settings.choice("pos_emb", among=_POSITIONS, default="learned")
    settings.put("model.position", position, "pos_emb", default=DEFAULT)
    names = ("use_bias_in_attn_linear", "use_bias_in_mlp")
    biases = [settings.flag(name, default=True) for name in names]
    settings.put("model.biases", all(biases), *names, default=DEFAULT)
    settings.put(
        "model.dropout", settings.number("hidden_dropout", default=0.0), "hidden_dropout", default=DEFAULT
    )
    settings.number("attention_dropout")


def _vocabulary(settings: Settings) -> None:
    draft = settings.draft
    size, origin = None, ""
    if settings.given.get("vocab_size") is not None:
        size, origin = settings.integer("vocab_size"), settings.origin("vocab_size")
    for name in ("vocab_file", "tokenizer_type"):
        found = settings.setting(name)
        if size is None and found and (known := vocabulary_of(str(found.value))):
            size, origin = known[0], f"{found.origin} ({known[1]})"
    if size is None:
        draft.ask("vocab_size", "the vocabulary is that of a tokenizer, which the files do not hold", "50277")
        return
    draft.put("model.vocab_size", size, origin)
    multiple = settings.integer("make_vocab_size_divisible_by", default=128)
    settings.put(
        "model.make_vocab_size_divisible_by", multiple, "make_vocab_size_divisible_by", default=DEFAULT
    )


def _layout(settings: Settings, gpus: int | None) -> None:
    draft = settings.draft
    tp = max(1, settings.integer("model_parallel_size", default=1) or 1)
    stages = settings.integer("pipe_parallel_size", default=0) or 0
    pp = max(1, stages)
    settings.put("parallelism.tp", tp, "model_parallel_size", default=DEFAULT)
    settings.put("parallelism.pp", pp, "pipe_parallel_size", default=DEFAULT)
    _pipeline(settings, pp)
    _tensor_parallelism(settings, tp)
    settings.refuse_if(
        "context_parallel_size", "context parallelism of gpt-neox is not read", harmless=(None, 0, 1)
    )
    settings.refuse_if("expert_parallel_size", "experts of gpt-neox are not read", harmless=(None, 0, 1))
    _recompute(settings, tp)
    _states(settings, pipeline=stages >= 1)
    put_batches(settings, batches_of(settings), gpus // (tp * pp) if gpus and gpus % (tp * pp) == 0 else None)
    if gpus and gpus % (tp * pp):
        draft.refuse("gpus", f"{gpus} GPUs are no multiple of model and pipe parallel {tp * pp}")
    _optimizer(settings)


def _pipeline(settings: Settings, pp: int) -> None:
    draft = settings.draft
    if pp == 1:
        settings.text("pipe_partition_method")
        return
    draft.put("schedule", "1f1b", "DeepSpeed's pipeline")
    method = settings.text("pipe_partition_method", default="type:transformer|mlp")
    if method not in ("type:transformer|mlp", "uniform", "parameters", "type:transformer"):
        settings.refuse("pipe_partition_method", "type:transformer|mlp is modelled")
    if draft.get("model.num_layers") % pp:
        draft.put("parallelism.stage_split", "uneven_unspecified", "layers that do not fill the stages")


def _tensor_parallelism(settings: Settings, tp: int) -> None:
    """What goes with tensors that are split: the sequence, and GPT-J's branches side by side."""
    draft = settings.draft
    if settings.flag("sequence_parallel") and tp > 1:
        settings.put("parallelism.sequence_parallel", True, "sequence_parallel")
    if not settings.flag("gpt_j_residual"):
        return
    if tp > 1:
        settings.refuse(
            "gpt_j_residual",
            "attention and MLP in parallel share one all-reduce under tensor parallelism, which "
            "is not modelled",
        )
    draft.note(
        "gpt_j_residual: attention and MLP run one after the other here; without tensor parallelism "
        "the work is the same"
    )


def _recompute(settings: Settings, tp: int) -> None:
    again = settings.flag("checkpoint_activations")
    every = settings.integer("checkpoint_num_layers", default=1) or 1
    if again and every > 1:
        kind: Any = {"kind": "full", "method": "uniform", "layers": every}
        settings.put("training.recompute", kind, "checkpoint_num_layers")
    else:
        settings.put(
            "training.recompute",
            "full" if again else "none",
            "checkpoint_activations",
            default=f"{DEFAULT}: off",
        )
    if again and settings.flag("partition_activations") and tp > 1:
        settings.refuse(
            "partition_activations",
            "activations that are partitioned over tensor-parallel ranks are not modelled",
        )
    if settings.flag("checkpoint_in_cpu"):
        settings.refuse("checkpoint_in_cpu", "checkpoints on the host are not modelled")


def _states(settings: Settings, *, pipeline: bool) -> None:
    """ZeRO, what is reduced, and the precision, which decides on ZeRO beside a pipeline."""
    draft = settings.draft
    stage = put_zero(settings, pipeline=pipeline)
    if settings.flag("fp32_allreduce"):
        draft.put_software("reduce_grad_bytes", 4, settings.origin("fp32_allreduce"))
    kind = precision_of(settings) or ("fp16", DEFAULT)
    told = settings.choice("precision", among={"fp16": "fp16", "bfloat16": "bf16", "fp32": "fp32"})
    settings.put("training.precision", told or kind[0], "precision", default=kind[1])
    if draft.get("training.precision") == "bf16" and pipeline and stage == 0:
        draft.put(
            "parallelism.zero", 1, "BF16_Optimizer shards the optimizer's state, whatever stage is named"
        )


def _optimizer(settings: Settings) -> None:
    name = settings.choice("optimizer.type", among=_OPTIMIZERS, default=None)
    if name == "none":
        settings.refuse("optimizer.type", "adam, sgd and lion are modelled")
    else:
        settings.put("training.optimizer.name", name, "optimizer.type")


IMPORTER = Importer(
    name="gpt-neox",
    title="gpt-neox",
    source="EleutherAI/gpt-neox megatron/neox_arguments (ea7aefd8)",
    recognises=_recognises,
    read=read_neox,
    order=25,
)
