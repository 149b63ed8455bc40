"""How a Megatron-LM run is laid out: axes, batches and stages, with the defaults of its arguments.

Sources: Megatron-LM megatron/training/arguments.py (validate_args); core/num_microbatches_calculator.py;
core/model_parallel_config.py; core/transformer/pipeline_parallel_layer_layout.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .megatron_model import DEFAULT
from .megatron_recompute import put_recompute
from .megatron_version import Megatron
from .settings import Settings

FSDP_STRATEGIES = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}

_AXES = (
    ("tp", ("tensor_model_parallel_size",)),
    ("pp", ("pipeline_model_parallel_size",)),
    ("cp", ("context_parallel_size",)),
    ("ep", ("expert_model_parallel_size", "moe_expert_parallel_size")),
)


def put_layout(settings: Settings, megatron: Megatron, gpus: int | None) -> None:
    """Put ``parallelism``, ``schedule`` and the batches of ``training``."""
    draft = settings.draft
    sizes = {}
    for axis, names in _AXES:
        sizes[axis] = settings.integer(*names, default=1) or 1
        settings.put(f"parallelism.{axis}", sizes[axis], *names, default=DEFAULT)
    if gpus is not None and megatron.version[0] == 2:
        for axis in ("tp", "pp"):
            if sizes[axis] > gpus:
                sizes[axis] = gpus
                draft.put(f"parallelism.{axis}", gpus, f"no more than the {gpus} GPUs, as v2 cuts it")
    etp = settings.integer("expert_tensor_parallel_size", default=sizes["tp"]) or 1
    if draft.get("model.moe") is None:
        if sizes["ep"] > 1:
            settings.refuse(_AXES[-1][1][0], "Megatron-LM ends on it where the model has no experts")
        draft.put("parallelism.ep", 1, "the model has no experts")
    else:
        settings.put("parallelism.etp", etp, "expert_tensor_parallel_size", default=f"{DEFAULT}: as tp")
    sequence = settings.flag("sequence_parallel")
    if sequence and sizes["tp"] == 1:
        draft.note("sequence_parallel is dropped where tp is 1, as Megatron-LM does")
    if sequence and sizes["tp"] > 1:
        settings.put("parallelism.sequence_parallel", True, "sequence_parallel")
    replica = sizes["tp"] * sizes["pp"] * sizes["cp"]
    dp = gpus // replica if gpus and gpus % replica == 0 and replica else None
    _sharding(settings, dp * sizes["cp"] if dp else None)
    _stages(settings, sizes["pp"])
    _batches(settings, dp)
    put_recompute(settings)
    order = settings.flag("use_tp_pp_dp_mapping")
    if order:
        settings.put("parallelism.order", "tp-cp-ep-pp-dp", "use_tp_pp_dp_mapping")


def _sharding(settings: Settings, ranks: int | None) -> None:
    """Which ZeRO stage the data-parallel options are."""
    draft = settings.draft
    strategy = settings.choice("data_parallel_sharding_strategy", among=FSDP_STRATEGIES)
    on = settings.flag("use_distributed_optimizer")
    fsdp = settings.flag("use_megatron_fsdp") or settings.flag("use_custom_fsdp")
    if settings.flag("use_torch_fsdp2"):
        settings.put("parallelism.zero", 3, "use_torch_fsdp2")
        settings.put("software.sharding.implementation", "fsdp2", "use_torch_fsdp2")
    elif fsdp:
        settings.put(
            "parallelism.zero",
            strategy or 0,
            "data_parallel_sharding_strategy",
            default=f"{DEFAULT}: no_shard",
        )
        if not strategy:
            draft.note("use_megatron_fsdp shards nothing until data_parallel_sharding_strategy is given")
    else:
        settings.put("parallelism.zero", int(on), "use_distributed_optimizer", default=DEFAULT)
    outer = settings.text("outer_dp_sharding_strategy")
    if outer not in (None, "no_shard"):
        settings.refuse(
            "outer_dp_sharding_strategy", f"{outer}: a second sharding between replicas is not modelled"
        )
    copies = settings.integer("num_distributed_optimizer_instances", default=1) or 1
    if copies > 1 and ranks and ranks % copies == 0:
        settings.put("parallelism.fsdp_shard_size", ranks // copies, "num_distributed_optimizer_instances")
    elif copies > 1 and ranks:
        settings.refuse(
            "num_distributed_optimizer_instances", f"{copies} does not divide the {ranks} data-parallel ranks"
        )


def _stages(settings: Settings, pp: int) -> None:
    """Chunks of a stage, and which layers they have."""
    layers = settings.draft.get("model.num_layers")
    if layers is None:
        return
    layout = settings.text("pipeline_model_parallel_layout")
    per_chunk = settings.integer("num_layers_per_virtual_pipeline_stage")
    chunks = settings.integer("num_virtual_stages_per_pipeline_rank")
    embedding = settings.flag("account_for_embedding_in_pipeline_split")
    loss = settings.flag("account_for_loss_in_pipeline_split")
    first = settings.integer("decoder_first_pipeline_num_layers")
    last = settings.integer("decoder_last_pipeline_num_layers")
    if sum(one is not None for one in (layout, per_chunk, chunks)) > 1:
        settings.draft.refuse(
            "num_virtual_stages_per_pipeline_rank",
            "chunks are said in several ways; Megatron-LM takes one of --pipeline-model-parallel-layout, "
            "--num-layers-per-virtual-pipeline-stage and this",
        )
        return
    if layout is not None:
        put_stage_layout(settings, layout, layers, pp)
        return
    counted = layers + embedding + loss
    if per_chunk is not None and per_chunk > 0:
        if counted % (pp * per_chunk):
            settings.refuse(
                "num_layers_per_virtual_pipeline_stage",
                f"{counted} layers on {pp} stages are no whole chunks of {per_chunk}",
            )
            return
        chunks = counted // pp // per_chunk
    if pp > 1:
        names = ("num_layers_per_virtual_pipeline_stage", "num_virtual_stages_per_pipeline_rank")
        _chunks(settings, pp, chunks or 1, settings.origin(*names, default=DEFAULT))
        cut = _Cut(
            layers=layers, pp=pp, chunks=chunks or 1, embedding=embedding, loss=loss, first=first, last=last
        )
        _split(settings, cut)


def _chunks(settings: Settings, pp: int, chunks: int, origin: str) -> None:
    """Put the chunks of a stage, the schedule, and how many microbatches go through a chunk in a row."""
    draft = settings.draft
    draft.put("parallelism.vpp", chunks, origin)
    draft.put(
        "schedule", "interleaved" if chunks > 1 else "1f1b", "Megatron-LM's schedule for so many chunks"
    )
    group = settings.integer(
        "microbatch_group_size_per_virtual_pipeline_stage", "microbatch_group_size_per_vp_stage"
    )
    if group is not None and chunks > 1 and group != pp:
        settings.put("schedule_options.group", group, "microbatch_group_size_per_virtual_pipeline_stage")


@dataclass(frozen=True, kw_only=True)
class _Cut:
    """How ``layers`` are cut into ``chunks`` on each of ``pp`` stages: ``embedding`` and ``loss`` count as a
    layer, or the ``first`` and the ``last`` stage are told how many they have."""

    layers: int
    pp: int
    chunks: int
    embedding: bool
    loss: bool
    first: int | None
    last: int | None

    @property
    def ends_count(self) -> bool:
        return self.embedding or self.loss


def _split(settings: Settings, cut: _Cut) -> None:
    """Put the layers of each chunk, where they are not the same for all."""
    if cut.embedding and cut.loss:
        settings.put(
            "parallelism.stage_split",
            "embedding_and_loss_as_layers",
            "account_for_embedding_in_pipeline_split",
        )
    elif cut.ends_count or cut.first is not None or cut.last is not None:
        name, split = _with_ends_counted(cut) if cut.ends_count else _with_ends_told(cut)
        if split is None:
            settings.refuse(
                name,
                f"{cut.layers} layers cannot be divided so over {cut.pp} stages of {cut.chunks} chunks",
            )
        else:
            settings.put("parallelism.stage_split", split, name)
    elif cut.layers % (cut.pp * cut.chunks) and settings.has("num_layers"):  # else they are asked for
        settings.draft.refuse(
            "num_layers",
            f"{cut.layers} layers cannot be split evenly over {cut.pp} stages of {cut.chunks} chunks",
        )


def _with_ends_counted(cut: _Cut) -> tuple[str, list[int] | None]:
    """The argument that says so, and the layers of each chunk where embedding or loss count as one; None
    where they cannot be divided so."""
    argument = "embedding" if cut.embedding else "loss"
    each, rest = divmod(cut.layers + cut.embedding + cut.loss, cut.pp * cut.chunks)
    split = [each] * (cut.pp * cut.chunks)
    split[0], split[-1] = split[0] - cut.embedding, split[-1] - cut.loss
    return f"account_for_{argument}_in_pipeline_split", None if rest else split


def _with_ends_told(cut: _Cut) -> tuple[str, list[int] | None]:
    """The argument that says so, and the layers of each chunk where the stages at the ends are told theirs
    and all others have as many; None where they cannot be divided so."""
    end = "first" if cut.first is not None else "last"
    stages = _stages_with_ends_told(cut)
    if stages is None or any(one % cut.chunks for one in stages):
        split = None
    else:
        split = [stages[stage % cut.pp] // cut.chunks for stage in range(cut.pp * cut.chunks)]
    return f"decoder_{end}_pipeline_num_layers", split


def _stages_with_ends_told(cut: _Cut) -> list[int] | None:
    inner = cut.pp - (cut.first is not None) - (cut.last is not None)
    left = cut.layers - (cut.first or 0) - (cut.last or 0)
    if inner <= 0 or left < 0 or left % inner:
        return None
    stages = [left // inner] * cut.pp
    stages[0] = stages[0] if cut.first is None else cut.first
    stages[-1] = stages[-1] if cut.last is None else cut.last
    return stages


def put_stage_layout(settings: Settings, text: str, layers: int, pp: int) -> None:
    """Put the stages that ``Et*2|(tt|)*5t|tmL`` says: a letter for each layer, a bar between chunks."""
    name = "pipeline_model_parallel_layout"
    stages = layout_stages(text)
    if stages is None:
        settings.refuse(
            name, "embedding E, layers t, prediction layers m, loss L, bars and (...)*n are known"
        )
        return
    if len(stages) % pp:
        settings.refuse(name, f"{len(stages)} chunks are no multiple of the {pp} pipeline stages")
        return
    together = "".join(stages)
    wanted = "E" + "t" * together.count("t") + "m" * together.count("m") + "L"
    if together != wanted or not stages[0].startswith("E"):
        settings.refuse(name, "E has to come first, L last, and m between the layers and L")
        return
    if "m" in together and ("m" not in stages[-1] or any("m" in one for one in stages[:-1])):
        settings.refuse(name, "prediction layers (m) on another stage than the loss are not modelled")
        return
    if "L" not in stages[-1]:
        settings.refuse(name, "the loss has to be on the last stage")
        return
    split = [one.count("t") for one in stages]
    if sum(split) != layers:
        settings.refuse(name, f"it has {sum(split)} layers, and num_layers is {layers}")
        return
    chunks = len(stages) // pp
    if pp > 1:
        _chunks(settings, pp, chunks, settings.origin(name))
        settings.put("parallelism.stage_split", split, name)


def layout_stages(text: str) -> list[str] | None:
    """The letters of each chunk of a pipeline layout; None where it is none.

    >>> layout_stages("Et*2|(tt|)*2t|tmL")
    ['Ett', 'tt', 'tt', 't', 'tmL']
    """
    plain = re.sub(r"[\s'\",]", "", text)
    if len(plain) > 2000 or not re.fullmatch(r"[EtmL|()*0-9]+", plain):
        return None
    for pattern in (r"\(([EtmL|]*)\)\*(\d{1,4})", r"([EtmL|])\*(\d{1,4})"):
        while found := re.search(pattern, plain):
            plain = plain[: found.start()] + found[1] * int(found[2]) + plain[found.end() :]
            if len(plain) > 20_000:
                return None
    if re.search(r"[()*0-9]", plain):
        return None
    return plain.split("|")


def _batches(settings: Settings, dp: int | None) -> None:
    draft = settings.draft
    micro = settings.integer("micro_batch_size")
    if micro is None and not settings.has("micro_batch_size"):
        draft.ask("micro_batch_size", "nothing says --micro-batch-size", "1")
    settings.put("training.micro_batch", micro, "micro_batch_size")
    seq = settings.integer("seq_length", "encoder_seq_length")
    if seq is None and not settings.has("seq_length"):
        draft.ask("seq_length", "nothing says --seq-length", "4096")
    settings.put("training.seq_length", seq, "seq_length")
    ramp = settings.setting("rampup_batch_size") or settings.setting("step_batch_size_schedule")
    settings.setting("step_batch_size_schedule")
    told = settings.given.get("global_batch_size") is not None
    whole = settings.integer("global_batch_size")
    if ramp is not None and ramp.value not in (True, False, "") and not told:
        draft.ask(
            "global_batch_size", f"the batch grows over the run ({ramp.origin}): say of which step", "1024"
        )
        return
    if whole is not None:
        settings.put("training.global_batch", whole, "global_batch_size")
    elif not settings.has("global_batch_size") and micro and dp:
        draft.put("training.global_batch", micro * dp, f"{DEFAULT}: one microbatch on each of {dp} replicas")
