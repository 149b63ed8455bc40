"""torchtitan's degrees, batches and stages: which rank does what, in the tables of all its versions.

Sources: pytorch/torchtitan torchtitan/config_manager.py at 9dec370 and v0.1.0; config/job_config.py,
distributed/parallel_dims.py, distributed/pipeline_parallel.py, train.py at v0.2.2; config/configs.py at
b5bcd76.
"""

from __future__ import annotations

from ..model.catalogue import get_model, model_names
from .settings import Setting, Settings

DEFAULT = "default of torchtitan"


SCHEDULES = {
    "1f1b": ("1f1b", 1), "gpipe": ("gpipe", 1), "interleaved1f1b": ("interleaved", 2),
    "loopedbfs": ("looped-bfs", 2),
    "interleavedzerobubble": ("interleaved-zb", 2), "zbvzerobubble": ("zb-v", 2),
    "dualpipev": ("dualpipev", 2),
}  # fmt: skip
"""torch's names: the schedule here, and the stages that a rank has by default."""


def _degree(settings: Settings, name: str, default: int = 1) -> int:
    """A degree, which stood in other tables in other versions; -1 where it is the rest by default."""
    names = (f"parallelism.{name}", f"training.{name}", f"experimental.{name}")
    value = settings.integer(*names, default=default, least=min(1, default))
    return default if value is None else value


def product_of(settings: Settings, file: str) -> Setting | None:
    """The GPUs that the degrees mean where all of them are told: only dp_shard may be -1, the rest."""
    shard = _degree(settings, "data_parallel_shard_degree", -1)
    if shard < 1:
        return None
    names = ("data_parallel_replicate", "tensor_parallel", "pipeline_parallel", "context_parallel")
    product = shard
    for name in names:
        product *= max(1, _degree(settings, f"{name}_degree"))
    return Setting(value=product, file=file, name="the product of the parallel degrees:")


_DEGREES = (
    ("tp", "tensor_parallel_degree"),
    ("pp", "pipeline_parallel_degree"),
    ("cp", "context_parallel_degree"),
    ("ep", "expert_parallel_degree"),
    ("etp", "expert_tensor_parallel_degree"),
)


def put_axes(settings: Settings, gpus: int | None) -> int | None:
    """Put the axes; the data-parallel degree, where it is known."""
    draft = settings.draft
    sizes = _degrees(settings)
    copies = _degree(settings, "data_parallel_replicate_degree")
    shard = _degree(settings, "data_parallel_shard_degree", _degree(settings, "data_parallel_degree", -1))
    if gpus is None:
        return None
    replica = sizes["tp"] * sizes["pp"] * sizes["cp"]
    if shard == -1:
        if gpus % (replica * copies):
            draft.refuse(
                "gpus", f"{gpus} GPUs are no multiple of the {replica * copies} that the other degrees take"
            )
            return None
        shard = gpus // (replica * copies)
    if copies * shard * replica != gpus:
        draft.refuse(
            "parallelism.data_parallel_shard_degree",
            f"the degrees are {copies * shard * replica} GPUs, and the job has {gpus}",
        )
        return None
    _shards(settings, shard * sizes["cp"], copies)
    return copies * shard


def _degrees(settings: Settings) -> dict[str, int]:
    """Put all axes but the data-parallel one; their sizes."""
    draft = settings.draft
    sizes = {axis: max(1, _degree(settings, name)) for axis, name in _DEGREES}
    for axis, name in _DEGREES:
        origin = settings.origin(
            f"parallelism.{name}", f"training.{name}", f"experimental.{name}", default=DEFAULT
        )
        if axis not in ("ep", "etp") or sizes[axis] > 1:
            draft.put(f"parallelism.{axis}", sizes[axis], origin)
    if sizes["tp"] > 1:
        draft.put(
            "parallelism.sequence_parallel", True, "torchtitan shards the sequence wherever tensors are split"
        )
        if not settings.flag("parallelism.enable_sequence_parallel", default=True):
            settings.refuse(
                "parallelism.enable_sequence_parallel",
                "tensor parallelism without it is not modelled for torchtitan",
            )
    return sizes


def _shards(settings: Settings, ranks: int, copies: int) -> None:
    """FSDP over ``ranks`` GPUs, ``copies`` times."""
    names = [f"{table}.data_parallel_shard_degree" for table in ("parallelism", "training", "experimental")]
    settings.put(
        "parallelism.zero", 3 if ranks > 1 else 0, *names, default=f"{DEFAULT}: the rest of the GPUs"
    )
    if copies > 1 and ranks > 1:
        settings.put("parallelism.fsdp_shard_size", ranks, *names, default="the GPUs of a replica")


def put_batches(settings: Settings, ranks: int | None, old: bool) -> None:
    """Put the sequence length and the batches of a step on ``ranks`` data-parallel ranks; ``old``: of
    2024."""
    draft = settings.draft
    seq = settings.integer("training.seq_len", "training.max_context_length", default=2048)
    settings.put(
        "training.seq_length", seq, "training.seq_len", "training.max_context_length", default=DEFAULT
    )
    if settings.has("training.max_context_length"):
        local, whole, names = _of_tokens(settings, seq or 1)
    else:
        names = ("training.local_batch_size", "training.batch_size")
        local, whole = (
            settings.integer(*names, default=8),
            settings.integer("training.global_batch_size", default=-1, least=-1),
        )
    _pipeline(settings, local or 1, names, old)
    if whole is not None and whole > 0:
        settings.put(
            "training.global_batch", whole, "training.global_batch_size", "training.num_tokens_per_train_step"
        )
    elif ranks and local:
        origin = settings.origin(*names, default=DEFAULT)
        draft.put("training.global_batch", local * ranks, f"{origin}, on each of {ranks} data-parallel ranks")


def _of_tokens(settings: Settings, seq: int) -> tuple[int | None, int | None, tuple[str, ...]]:
    """Batches that are counted in tokens, in sequences."""
    names = ("training.num_tokens_per_microbatch_per_dp_rank",)
    tokens, step = (
        settings.integer(*names, default=16384) or 0,
        settings.integer("training.num_tokens_per_train_step", default=-1, least=-1) or -1,
    )
    if tokens % seq or (step > 0 and step % seq):
        settings.refuse(names[0], f"it and the tokens of a step have to be whole sequences of {seq} tokens")
    return max(1, tokens // seq), step if step < 0 else step // seq, names


_MICROBATCH = "parallelism.pipeline_parallel_microbatch_size"
_PER_STAGE = "parallelism.pipeline_parallel_layers_per_stage"
_MICROBATCHES = ("experimental.pipeline_parallel_microbatches", "parallelism.num_pp_microbatches")


def _pipeline(settings: Settings, local: int, names: tuple[str, ...], old: bool) -> None:
    """Schedule, chunks, microbatches and the layers of each stage."""
    pp = settings.draft.get("parallelism.pp", 1)
    told = tuple(f"{table}.pipeline_parallel_schedule" for table in ("parallelism", "experimental"))
    schedule, chunks = settings.choice(*told, among=SCHEDULES, default=("1f1b", 1)) if pp > 1 else ("none", 1)
    per_stage = settings.integer(_PER_STAGE)
    counts, size = settings.integer(*_MICROBATCHES), settings.integer(_MICROBATCH)
    ends = tuple(
        settings.integer(f"parallelism.pipeline_parallel_{one}_stage_less_layers", default=1) or 0
        for one in ("first", "last")
    )
    _refuse_stages(settings, pp)
    if pp == 1:
        settings.put("training.micro_batch", local, *names, default=DEFAULT)
        return
    layers = _layers(settings)
    if per_stage and layers:
        chunks = -(-(layers + sum(ends)) // per_stage) // pp or 1
    settings.put("parallelism.vpp", chunks, _PER_STAGE, *told, default=DEFAULT)
    settings.put("schedule", schedule, *told, default=DEFAULT)
    if layers:
        _stages(settings, layers, chunks, None if old else (ends[0], ends[1]), sum(ends))
    if size is None and not old and counts is None:
        size = 1
    if size is None:
        counts = counts or pp * chunks
        if local % counts:
            settings.refuse(
                names[0], f"a local batch of {local} is not a multiple of its {counts} pipeline microbatches"
            )
            return
        size = local // counts
    _microbatch(settings, size, local)


def _refuse_stages(settings: Settings, pp: int) -> None:
    """Ways to describe stages that are not read."""
    settings.refuse_if(
        "parallelism.module_fqns_per_model_part",
        "stages made of named modules are not read; give stage_split in a scenario",
        harmless=(None, [], ""),
    )
    settings.refuse_if(
        "parallelism.pipeline_parallel_schedule_csv",
        "tables of actions are read as schedule: file.csv of a scenario",
        harmless=(None, ""),
    )
    points = settings.setting("experimental.pipeline_parallel_split_points") or settings.setting(
        "parallelism.pipeline_parallel_split_points"
    )
    if points is not None and points.value not in ([], "") and pp > 1:
        settings.refuse(points.name, "stated split points are not read; give stage_split in a scenario")


def _stages(settings: Settings, layers: int, chunks: int, less: tuple[int, int] | None, ends: int) -> None:
    """Layers of each stage; ``less``: by how many the first and the last have fewer, None before 2025."""
    pp = settings.draft.get("parallelism.pp")
    if pp * chunks > layers + ends:
        settings.refuse(
            "parallelism.pipeline_parallel_degree",
            f"{layers} layers do not fill {pp} pipeline ranks with {chunks} stages each",
        )
        return
    origin = "torchtitan's division of 2024"
    if less is not None:
        origin = "torchtitan's division, with fewer layers on the first and last stage"
    settings.draft.put("parallelism.stage_split", stage_layers(layers, pp * chunks, less), origin)


def _microbatch(settings: Settings, size: int, local: int) -> None:
    if size < 1 or local % size:
        settings.refuse(_MICROBATCH, f"{size} does not divide the local batch of {local}")
        return
    origin = settings.origin(_MICROBATCH, *_MICROBATCHES, default=f"{DEFAULT}, of a local batch of {local}")
    settings.draft.put("training.micro_batch", size, origin)


def _layers(settings: Settings) -> int | None:

    draft = settings.draft
    name = draft.get("model.preset")
    if name in model_names():
        return get_model(name).num_layers
    layers = draft.get("model.num_layers")
    return layers if isinstance(layers, int) else None


def stage_layers(layers: int, stages: int, ends: tuple[int, int] | None) -> list[int]:
    """Layers of each stage: with ends that weigh as layers (v0.2 on), or as 2024 cut them."""
    if ends is not None:
        each, more = divmod(layers + sum(ends), stages)
        split = [each + (stage < more) for stage in range(stages)]
        split[0], split[-1] = split[0] - ends[0], split[-1] - ends[1]
        return split
    each, more = divmod(layers, stages)
    split = [each + (0 < stage <= more) for stage in range(stages - 1)]
    return [*split, layers - sum(split)]
