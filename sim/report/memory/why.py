"""Why a line of the memory bill is not what the textbook's formula says: facts of the scenario, in words.

Every sentence follows from a field of the scenario or from the rule by which its software shards; none is
guessed from the size of the difference.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...scenario.schedules import schedule_named
from ...scenario.sharding import gradients_last, sharding_rule

if TYPE_CHECKING:
    from ...result.step import StageMemory
    from ...scenario.models import Scenario

EIGHT_BITS = ("fp8", "mxfp8", "nvfp4")


def layers_of_an_input(run: Scenario) -> int:
    """Layers for each input that is kept where all are recomputed in full; else 0."""
    recompute = run.training.recompute
    if isinstance(recompute, str):
        return 1 if recompute == "full" else 0
    return (recompute.layers or 1) if recompute.method == "uniform" else 0


def keeps_no_scores(run: Scenario) -> bool:
    """Whether the attention core is recomputed in every layer."""
    recompute = run.training.recompute
    if isinstance(recompute, str):
        return recompute == "selective"
    return "core_attn" in recompute.modules


def why_weights(run: Scenario) -> Iterator[str]:
    """Why weights are not 2 N bytes, or the share of a shard group."""
    rule = sharding_rule(run)
    if rule and rule.master_only and run.parallelism.zero == 3:
        yield "the FP32 parameters are the ones that are sharded"
    elif rule and rule.gathers != "never" and run.training.precision != "fp32":
        yield "shards alone: what is gathered of them is a term of its own"
    elif rule and rule.gathers == "never" and run.parallelism.zero == 3:
        yield "whole parameters stay"
    if run.training.precision in EIGHT_BITS and rule is None:
        kept = "alone" if run.software.kernels.fp8_parameters else "beside the 16-bit ones"
        yield f"weights of layers are kept quantised, {kept}"
    if schedule_named(run.schedule).weight_versions:
        yield "several versions are kept"
    yield from _experts(run)


def why_gradients(run: Scenario, *, fewer: bool) -> Iterator[str]:
    """Why gradients are not 2 N bytes, or a rank's share."""
    software, rule, training = run.software, sharding_rule(run), run.training
    size = max(
        software.gradients.gradient_bytes(training.precision), 4 if training.precision == "fp32" else 2
    )
    wide = training.precision != "fp32" and size == 4
    if training.offloads_state and rule and rule.reduces_each:
        yield "shards are on the host; what is there is on its way to it"
    elif rule is None:
        if run.parallelism.zero == 2:
            yield "whole: the distributed optimizer reduces them into shards once a step"
        if wide and software.gradients.keeps_copies(run.parallelism.zero, run.parallelism.dp):
            yield "FP32 and 16-bit ones (20 N)"
        elif wide:
            yield "accumulated in FP32 (18 N)"
    else:
        if wide:
            yield "shards in FP32"
        if rule.reduces_each:
            yield "whole gradients of what is being reduced"
        else:
            wide = size == 4 and not (rule.waits_narrow and training.precision != "fp32")
            width = "FP32" if wide else "16 bit"
            yield f"whole ones in {width} from a stage's first backward to its last, which reduces them"
    if software.gradients.reducer_copy and rule is None and run.parallelism.dp > 1:
        yield "once more in the buckets of torch's DDP"
    if not gradients_last(run, rule) and fewer:
        yield "they come with the first backward of each chunk: some are not there at the peak"
    if software.kernels.copies_in_update and training.optimizer.copies and not training.offloads_state:
        yield f"in the update, {training.optimizer.copies} are beside them"
    yield from _experts(run)


def why_optimizer(run: Scenario) -> Iterator[str]:
    """Why optimizer states are not 12 N bytes, or a rank's share."""
    rule, training = sharding_rule(run), run.training
    if training.offloads_state:
        yield "on the host"
        return
    if rule and rule.master_only and training.precision != "fp32":
        yield "the FP32 master weights are the sharded parameters themselves"
    row, momentum = training.optimizer.row, training.optimizer.momentum
    if run.software.gradients.update_bytes(training.precision) == 2:
        yield "no FP32 master weights, and states in 16 bit"
        yield from _experts(run)
        return
    if (kept := row.state_bytes(4, momentum=momentum)) != 8:
        factors = " and sums of rows and columns" if row.factors else ""
        of = " of matrices of layers, Adam's of the rest" if row.orthogonalizes else ""
        yield f"{row.name} keeps {kept} bytes a parameter{factors}{of}, not Adam's 8"
    elif run.software.gradients.moment_bytes == 2:
        yield "moments in 16 bit"
    yield from _experts(run)


def _experts(run: Scenario) -> Iterator[str]:
    if run.model.moe and run.parallelism.zero and run.parallelism.ep > 1:
        yield "experts are sharded over fewer ranks"


def _keeps_fp32_probabilities(run: Scenario) -> bool:
    """Whether unfused attention of some layers keeps probabilities in FP32, too."""
    kernels, windowed = run.software.kernels, run.model.sliding_window is not None
    in_one = kernels.softmax_is_one_kernel(windowed=windowed)
    narrow = run.training.precision != "fp32" and kernels.softmax_fp32
    return narrow and not in_one and not keeps_no_scores(run)


def why_activations(run: Scenario, stage: StageMemory) -> Iterator[str]:
    """How this model differs from the textbook's GPT in 16 bit with dropout and unfused attention."""
    model, software, training = run.model, run.software, run.training
    layers = layers_of_an_input(run)
    if training.activation_offload:
        yield "all but three layers are on the host"
    if layers:
        at_work = "one layer that is" if layers == 1 else f"{layers} layers that are"
        yield f"{at_work} being recomputed at a time"
        yield from _ends(run, stage)
        return
    if training.recompute not in ("none", "selective") and not keeps_no_scores(run):
        yield "a part is recomputed"
    elif not isinstance(training.recompute, str) and len(training.recompute.modules) > 1:
        yield "other modules are recomputed too"
    if software.kernels.attention != "unfused" and not keeps_no_scores(run):
        yield "fused attention keeps no scores"
    elif _keeps_fp32_probabilities(run):
        yield "softmax in FP32 keeps its output, beside what is cast back of it"
    yield from _layer(run)
    if (
        run.parallelism.sequence_parallel
        and run.parallelism.tp > 1
        and not software.exchange.sp_regathers_input
    ):
        yield "inputs of column-parallel matrices are kept whole"
    if not software.kernels.norm_is_one_kernel(rms_norm=model.norm == "rmsnorm"):
        yield "norms keep FP32 copies"
    if model.mlp == "swiglu" and not software.kernels.fuses_activation(gated=True):
        yield "the unfused activation keeps one more branch"
    if (
        software.kernels.gelu_by_operators
        and model.mlp == "gelu"
        and not software.kernels.fuses_activation(gated=False)
    ):
        yield "GELU by its operators keeps three tensors more"
    if software.kernels.autocast:
        yield "the residual stream is FP32"
    if training.precision in EIGHT_BITS:
        yield "inputs of matrices are kept quantised"
    if training.precision == "fp32":
        yield "four bytes an element"
    yield from _ends(run, stage)


def _layer(run: Scenario) -> Iterator[str]:
    """What the layer has otherwise than the textbook's."""
    model = run.model
    if model.moe:
        yield "experts keep their tokens' copies"
    elif model.mlp == "swiglu" or model.ffn_hidden_size != 4 * model.hidden_size:
        branches = " in two branches" if model.mlp == "swiglu" else ""
        yield f"the MLP is {model.ffn_hidden_size / model.hidden_size:.2g} h wide{branches}"
    if model.mla:
        yield "latent attention: latents, and wider queries and keys"
    elif model.num_query_groups < model.num_attention_heads:
        yield "fewer key and value heads"
    if not model.mla and model.num_attention_heads * model.kv_channels != model.hidden_size:
        yield f"heads are {model.num_attention_heads * model.kv_channels / model.hidden_size:.2g} h wide"
    if not model.dropout:
        yield "no dropout masks"


def _ends(run: Scenario, stage: StageMemory) -> Iterator[str]:
    """What the ends of the model keep: the embedding's dropout mask, the head's input."""
    last = run.parallelism.pp - 1
    schedule = schedule_named(run.schedule)
    if stage.pp == 0 and (run.model.dropout or schedule.ends_meet or last == 0):
        yield "the ends of the model" if last == 0 or schedule.ends_meet else "the embedding's dropout mask"
    elif stage.pp == last or run.parallelism.stage_split == "flops_balanced":
        yield "the input of the head"
    if schedule.splits_backward or schedule.ends_meet:
        yield "after its input gradient a layer keeps what its weight gradients wait for"
