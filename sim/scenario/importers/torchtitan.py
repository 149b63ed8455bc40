"""torchtitan: TOML of all versions, and the configuration that its Python registry dumps.

Sources: pytorch/torchtitan torchtitan/config_manager.py at 9dec370 and v0.1.0; config/job_config.py,
distributed/parallel_dims.py, distributed/pipeline_parallel.py, train.py at v0.2.2; config/configs.py at
b5bcd76.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Any

from ....hardware.files import load_yaml
from .arguments import launch_of
from .cluster_facts import put_machine, world_size
from .draft import Draft, Imported
from .importer import Importer, ImportJob
from .leftovers import settle
from .settings import Setting, Settings
from .sources import SourceFile

DEFAULT = "default of torchtitan"

SCHEDULES = {
    "1f1b": ("1f1b", 1), "gpipe": ("gpipe", 1), "interleaved1f1b": ("interleaved", 2),
    "loopedbfs": ("looped-bfs", 2),
    "interleavedzerobubble": ("interleaved-zb", 2), "zbvzerobubble": ("zb-v", 2),
    "dualpipev": ("dualpipev", 2),
}  # fmt: skip
"""torch's names: the schedule here, and the stages that a rank has by default."""

_OTHER_MODELS = {
    "flux": "image models are not modelled", "vlm": "vision-language models are not modelled",
    "llama4": "llama4's chunked attention is not modelled", "transformers_modeling_backend": None,
}  # fmt: skip


@cache
def flavors() -> dict[str, dict[str, dict[str, Any]]]:
    """Models by name and flavor: a catalogue's model under ``preset``, changes to it, or the fields."""
    name = "torchtitan_flavors.yaml"
    table: dict[str, dict[str, dict[str, Any]]] = load_yaml(
        (files(__package__) / name).read_text(encoding="utf-8"), name
    )
    return table


def _recognises(file: SourceFile) -> bool:
    if file.kind == "toml":
        return "training" in file.keys and bool(
            file.keys & {"job", "parallelism", "activation_checkpoint", "experimental", "model"}
        )
    if file.kind in ("json", "yaml"):
        return (
            file.at("training.max_context_length") is not None
            or {"parallelism", "training", "activation_checkpoint"} <= file.keys
        )
    return False


def read_torchtitan(job: ImportJob) -> Imported:
    """The scenario of a torchtitan run.

    Raises:
        ScenarioError: what is asked or refused.
    """
    draft = Draft(framework="torchtitan", file=job.name)
    first = next((one for one in job.files if _recognises(one)), job.files[0])
    settings = Settings(found=first.settings(), given=job.given, draft=draft, dotted=True)
    launch = next(
        (launch_of(one, job.given.values) for one in job.files if one.kind in ("shell", "arguments")), None
    )
    if launch:
        settings.found |= {name: one for name, one in launch.options.items() if "." in name}
    gpus = world_size(
        settings,
        launch.nodes if launch else None,
        launch.per_node if launch else None,
        None if launch and launch.per_node else _product(settings, first.name),
    )
    return torchtitan_scenario(settings, job.version, gpus)


def torchtitan_scenario(settings: Settings, version: str | None, gpus: int | None) -> Imported:
    """The scenario that torchtitan's settings say; Primus has them under its own roof.

    Raises:
        ScenarioError: what is asked or refused.
    """
    draft = settings.draft
    old = settings.has("training.batch_size") or (version or "").startswith(("9dec370", "c48ae39", "2024"))
    draft.version = version or ("2024" if old else "v0.2.2")
    draft.put(
        "software.preset", "torchtitan-2024" if old else "torchtitan-2025", f"torchtitan {draft.version}"
    )
    _model(settings)
    ranks = _axes(settings, gpus)
    _batches(settings, ranks, old)
    _recompute(settings)
    _precision(settings)
    _software(settings, old)
    put_machine(settings)
    settle(settings, "torchtitan")
    return draft.finished()


def _model(settings: Settings) -> None:
    draft = settings.draft
    if draft.get("model.preset") is not None:  # Primus names it
        return
    settings.text("hf_transformers.model")
    if settings.flag("fault_tolerance.enable"):
        settings.refuse_if(
            "fault_tolerance.semi_sync_method", "replicas that meet only now and then are not modelled"
        )
    for name in (
        "fault_tolerance.sync_steps",
        "fault_tolerance.num_fragments",
        "fault_tolerance.fragment_sync_delay",
    ):
        settings.setting(name)
    named = settings.text("model.name")
    flavor = settings.text("model.flavor")
    given = settings.given.get("model")
    if given is not None:
        draft.put("model.preset", given, f"--given model={given}")
        return
    if named in _OTHER_MODELS:
        why = _OTHER_MODELS[named]
        if why:
            settings.refuse("model.name", f"{named}: {why}")
            return
    found = flavors().get(str(named), {}).get(str(flavor))
    if found is None:
        why = (
            f"the shape of {named} {flavor} is in torchtitan's Python, not in the file, and not in our table"
        )
        draft.ask("model", f"{why} (a model of stepsim list models, or a config.json)", "llama3-8b")
        return
    for field, value in found.items():
        draft.put(f"model.{field}", value, settings.origin("model.flavor"))
    rows = settings.given.get("vocab_size")
    if rows is not None:
        draft.put("model.vocab_size", settings.integer("vocab_size"), settings.origin("vocab_size"))


def _degree(settings: Settings, name: str, default: int = 1) -> int:
    """A degree, which stood in other tables in other versions; -1 where it is the rest by default."""
    names = (f"parallelism.{name}", f"training.{name}", f"experimental.{name}")
    value = settings.integer(*names, default=default, least=min(1, default))
    return default if value is None else value


def _product(settings: Settings, file: str) -> Setting | None:
    """The GPUs that the degrees mean where all of them are told: only dp_shard may be -1, the rest."""
    shard = _degree(settings, "data_parallel_shard_degree", -1)
    if shard < 1:
        return None
    names = ("data_parallel_replicate", "tensor_parallel", "pipeline_parallel", "context_parallel")
    product = shard
    for name in names:
        product *= max(1, _degree(settings, f"{name}_degree"))
    return Setting(value=product, file=file, name="the product of the parallel degrees:")


def _axes(settings: Settings, gpus: int | None) -> int | None:
    """Put the axes; the data-parallel degree, where it is known."""
    draft = settings.draft
    sizes = {}
    for axis, name in (
        ("tp", "tensor_parallel_degree"),
        ("pp", "pipeline_parallel_degree"),
        ("cp", "context_parallel_degree"),
        ("ep", "expert_parallel_degree"),
        ("etp", "expert_tensor_parallel_degree"),
    ):
        sizes[axis] = max(1, _degree(settings, name))
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
    names = [f"{table}.data_parallel_shard_degree" for table in ("parallelism", "training", "experimental")]
    ranks = shard * sizes["cp"]
    draft.put(
        "parallelism.zero",
        3 if ranks > 1 else 0,
        settings.origin(*names, default=f"{DEFAULT}: the rest of the GPUs"),
    )
    if copies > 1 and ranks > 1:
        draft.put(
            "parallelism.fsdp_shard_size", ranks, settings.origin(*names, default="the GPUs of a replica")
        )
    return copies * shard


def _batches(settings: Settings, ranks: int | None, old: bool) -> None:
    draft = settings.draft
    seq = settings.integer("training.seq_len", "training.max_context_length", default=2048)
    draft.put(
        "training.seq_length",
        seq,
        settings.origin("training.seq_len", "training.max_context_length", default=DEFAULT),
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
        draft.put(
            "training.global_batch",
            whole,
            settings.origin("training.global_batch_size", "training.num_tokens_per_train_step"),
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


def _pipeline(settings: Settings, local: int, names: tuple[str, ...], old: bool) -> None:
    """Schedule, chunks, microbatches and the layers of each stage."""
    draft, pp = settings.draft, settings.draft.get("parallelism.pp", 1)
    told = tuple(f"{table}.pipeline_parallel_schedule" for table in ("parallelism", "experimental"))
    schedule, chunks = settings.choice(*told, among=SCHEDULES, default=("1f1b", 1)) if pp > 1 else ("none", 1)
    per_stage = settings.integer("parallelism.pipeline_parallel_layers_per_stage")
    counts = settings.integer(
        "experimental.pipeline_parallel_microbatches", "parallelism.num_pp_microbatches"
    )
    size = settings.integer("parallelism.pipeline_parallel_microbatch_size")
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
    ends = [
        settings.integer(f"parallelism.pipeline_parallel_{one}_stage_less_layers", default=1) or 0
        for one in ("first", "last")
    ]
    points = settings.setting("experimental.pipeline_parallel_split_points") or settings.setting(
        "parallelism.pipeline_parallel_split_points"
    )
    if points is not None and points.value not in ([], "") and pp > 1:
        settings.refuse(
            points.name, "split points that are told are not read; give stage_split in a scenario"
        )
    if pp == 1:
        draft.put("training.micro_batch", local, settings.origin(*names, default=DEFAULT))
        return
    layers = _layers(settings)
    if per_stage and layers:
        chunks = -(-(layers + sum(ends)) // per_stage) // pp or 1
    draft.put(
        "parallelism.vpp",
        chunks,
        settings.origin("parallelism.pipeline_parallel_layers_per_stage", *told, default=DEFAULT),
    )
    draft.put("schedule", schedule, settings.origin(*told, default=DEFAULT))
    if layers and pp * chunks > layers + sum(ends):
        settings.refuse(
            "parallelism.pipeline_parallel_degree",
            f"{layers} layers do not fill {pp} pipeline ranks with {chunks} stages each",
        )
    elif layers:
        split = stage_layers(layers, pp * chunks, None if old else (ends[0], ends[1]))
        draft.put(
            "parallelism.stage_split",
            split,
            "torchtitan's division, with fewer layers on the first and last stage"
            if not old
            else "torchtitan's division of 2024",
        )
    if size is None and not old and counts is None:
        size = 1
    if size is None:
        counts = counts or pp * chunks
        if local % counts:
            settings.refuse(
                names[0], f"a local batch of {local} is no multiple of its {counts} pipeline microbatches"
            )
            return
        size = local // counts
    if size < 1 or local % size:
        settings.refuse(
            "parallelism.pipeline_parallel_microbatch_size",
            f"{size} does not divide the local batch of {local}",
        )
        return
    draft.put(
        "training.micro_batch",
        size,
        settings.origin(
            "parallelism.pipeline_parallel_microbatch_size",
            "experimental.pipeline_parallel_microbatches",
            "parallelism.num_pp_microbatches",
            default=f"{DEFAULT}, of a local batch of {local}",
        ),
    )


def _layers(settings: Settings) -> int | None:
    from ..model.catalogue import get_model, model_names

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


def _recompute(settings: Settings) -> None:
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
        draft.put("training.recompute", mode, settings.origin("activation_checkpoint.mode", default=DEFAULT))
    elif option == "op":
        draft.put(
            "training.recompute", "op_selective", settings.origin("activation_checkpoint.selective_ac_option")
        )
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


def _precision(settings: Settings) -> None:
    draft = settings.draft
    kind = settings.choice(
        "training.mixed_precision_param", among={"bfloat16": "bf16", "float32": "fp32"}, default="bf16"
    )
    origin = settings.origin("training.mixed_precision_param", default=DEFAULT)
    width = settings.choice("training.mixed_precision_reduce", among={"float32": None, "bfloat16": 2})
    if width is not None:
        draft.put_software("reduce_grad_bytes", width, settings.origin("training.mixed_precision_reduce"))
    if settings.text("training.dtype", default="float32") != "float32":
        settings.refuse("training.dtype", "master weights in fewer than 32 bits are not modelled")
    converters = settings.setting("model.converters")
    listed = converters.value if converters and isinstance(converters.value, list) else []
    if isinstance(converters and converters.value, str):
        listed = re.split(r"[,\s]+", str(converters.value if converters else ""))
    known = {
        "float8",
        "quantize.linear.float8",
        "mx",
        "quantize.linear.mx",
        "quantize.grouped_mm.float8",
        "quantize.grouped_mm.mx",
        "",
    }
    if strange := [one for one in map(str, listed) if one not in known]:
        settings.refuse("model.converters", f"{', '.join(strange)[:80]}: float8 and mx are modelled")
    if any("mx" in str(one) for one in listed):
        kind, origin = "mxfp8", settings.origin("model.converters")
    elif (listed and any("float8" in str(one) for one in listed)) or settings.flag(
        "float8.enable_float8_linear"
    ):
        kind, origin = "fp8", settings.origin("model.converters", "float8.enable_float8_linear")
        recipe = settings.text("float8.recipe_name", "quantize.linear.float8.recipe_name")
        if recipe not in (None, "", "tensorwise"):
            settings.refuse("float8.recipe_name", f"{recipe}: tensorwise scaling is modelled")
        names = (
            "float8.enable_fsdp_float8_all_gather",
            "quantize.linear.float8.enable_fsdp_float8_all_gather",
        )
        draft.put(
            "software.kernels.fp8_parameters",
            settings.flag(*names),
            settings.origin(*names, default=f"{DEFAULT}: off"),
        )
    draft.put("training.precision", kind, origin)
    if any("grouped_mm" in str(one) for one in listed):
        draft.note("experts' products are in the precision of the others here")


def _software(settings: Settings, old: bool) -> None:
    draft = settings.draft
    compiled = settings.flag("compile.enable", "training.compile")
    origin = settings.origin("compile.enable", "training.compile", default=f"{DEFAULT}: off")
    told = settings.setting("compile.components")
    parts = (
        ["model", "loss"] if told is None else told.value if isinstance(told.value, list) else [told.value]
    )
    draft.put("software.kernels.torch_compile", compiled and "model" in parts, origin)
    if not old:
        draft.put(
            "software.kernels.cross_entropy", "fused" if compiled and "loss" in parts else "eager", origin
        )
    names = (
        "parallelism.enable_async_tensor_parallel",
        "experimental.enable_async_tensor_parallel",
        "compile.enable_async_tensor_parallel",
    )
    wanted = settings.flag(*names)
    if draft.get("parallelism.tp", 1) > 1:
        if wanted and not compiled:
            settings.refuse(names[0], "it takes compilation beside it")
        draft.put(
            "software.exchange.tp_comm_overlap", wanted, settings.origin(*names, default=f"{DEFAULT}: off")
        )
    reshard = settings.choice(
        "parallelism.fsdp_reshard_after_forward",
        among={"default": "default", "always": "always", "never": "never"},
        default="default",
    )
    draft.put(
        "software.sharding.reshard_after_forward",
        reshard,
        settings.origin("parallelism.fsdp_reshard_after_forward", default=DEFAULT),
    )
    rotate = tuple(f"{table}.context_parallel_rotate_method" for table in ("parallelism", "experimental"))
    method = settings.choice(
        *rotate, among={"allgather": "all_gather", "alltoall": "p2p"}, default="all_gather"
    )
    draft.put("software.exchange.cp_comm", method, settings.origin(*rotate, default=f"{DEFAULT}: allgather"))
    for name in (
        "parallelism.disable_loss_parallel",
        "training.disable_loss_parallel",
        "parallelism.enable_loss_parallel_off",
    ):
        settings.refuse_if(name, "logits that are gathered are not modelled for torchtitan")
    settings.refuse_if(
        "training.enable_cpu_offload", "parameters and gradients on the host are not modelled for FSDP2"
    )
    settings.refuse_if(
        "experimental.enable_cpu_offload", "parameters and gradients on the host are not modelled for FSDP2"
    )
    settings.refuse_if("optimizer.early_step_in_backward", "updates inside the backward are not modelled")
    how = settings.choice(
        "optimizer.implementation", among={"fused": True, "foreach": False, "for-loop": False}, default=True
    )
    fused = settings.flag("optimizer.fused", default=how)
    draft.put(
        "software.kernels.fused_optimizer",
        fused,
        settings.origin("optimizer.implementation", "optimizer.fused", default=DEFAULT),
    )
    name = settings.choice("optimizer.name", among={"adamw": None, "adam": None})
    if name:
        draft.put("training.optimizer.name", name, settings.origin("optimizer.name"))


IMPORTER = Importer(
    name="torchtitan",
    title="torchtitan",
    source="pytorch/torchtitan torchtitan/config_manager.py, config/job_config.py (9dec370 to v0.2.2), "
    "config/configs.py (b5bcd76)",
    recognises=_recognises,
    read=read_torchtitan,
    order=30,
)
