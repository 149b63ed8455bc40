"""Performance recipes of Megatron-Bridge and NeMo 2: a model by name, and the layout as options of a
launcher.

Sources: NVIDIA-NeMo/Megatron-Bridge scripts/performance/argument_parser.py, utils/utils.py
(WorkloadBaseConfig), utils/overrides.py (v0.2.0 to v0.4.2); training/comm_overlap.py, mixed_precision.py;
recipes/common.py.
"""

from __future__ import annotations

from ..machine import slurm_segment
from ..model.catalogue import get_model, model_names
from ..software.presets import get_software
from .arguments import Launch
from .cluster_facts import put_machine, world_size
from .cuda_graphs import SCOPE_NAMES, put_scopes
from .draft import PACKED, Draft, Imported
from .importer import ImportJob
from .leftovers import settle
from .megatron_layout import put_stage_layout
from .model_facts import put_named_model
from .router_loss import put_router_loss
from .settings import Setting, Settings
from .sources import SourceFile

RECIPE = "Megatron-Bridge's recipe"

RECIPES = {
    "llama3_8b": "llama3-8b", "llama3_70b": "llama3-70b", "llama31_405b": "llama3.1-405b",
    "deepseek_v3": "deepseek-v3",
    "qwen3_235b_a22b": "qwen3-235b-a22b", "qwen3_30b_a3b": "qwen3-30b-a3b",
    "gpt_oss_120b": "gpt-oss-120b", "kimi_k2": "kimi-k2",
    "nemotron4_340b": "nemotron4-340b", "nemotron4_15b": "nemotron4-15b", "gpt_oss_20b": "gpt-oss-20b",
    "gpt3_175b": "gpt3-175b",
    "mixtral_8x7b": "mixtral-8x7b", "mixtral_8x22b": "mixtral-8x22b", "llama3.1_405b": "llama3.1-405b",
    "grok1": "grok-1",
    "llama31_8b": "llama3-8b", "llama31_70b": "llama3-70b",
}  # fmt: skip
"""Recipes by name: the model of the catalogue."""

PRECISIONS = {
    "bf16": ("bf16", None), "fp8_cs": ("fp8", "current"), "fp8_ss": ("fp8", "blockwise"),
    "fp8_sc": ("fp8", "blockwise"), "fp8_ds": ("fp8", "delayed"), "fp8_mx": ("mxfp8", None),
    "nvfp4": ("nvfp4", None), "fp8": ("fp8", "delayed"), "fp16": ("fp16", None), "fp32": ("fp32", None),
}  # fmt: skip
"""``--compute_dtype``: precision and scaling (scripts/performance/utils/precision.py)."""

GPUS = {
    "h100": "H100-SXM5-80GB",
    "h200": "H200-SXM-141GB",
    "b200": "B200-SXM-180GB",
    "gb200": "GB200-NVL72",
    "gb300": "GB300-NVL72",
    "b300": "B300-SXM",
    "a100": "A100-SXM4-80GB",
}

_SHORT = {
    "tensor_model_parallel_size": ("tp", "-tp", "tensor_parallel_size"),
    "pipeline_model_parallel_size": ("pp", "pipeline_parallel_size"), "context_parallel_size": ("cp",),
    "virtual_pipeline_model_parallel_size": ("vp", "virtual_pipeline_parallel_size"),
    "expert_model_parallel_size": ("ep", "expert_parallel_size"),
    "expert_tensor_parallel_size": ("et", "etp"), "model_recipe_name": ("mr",),
    "model_family_name": ("m",), "gpu": ("g",), "micro_batch_size": ("mb", "mbs"),
    "global_batch_size": ("gb", "gbs"), "compute_dtype": ("c", "dtype"), "num_gpus": ("ng",),
    "gpus_per_node": ("gn", "num_gpus_per_node"), "seq_length": ("sl",),
}  # fmt: skip
"""Other names of launchers: NeMo 2's scripts/performance/argument_parser.py has the longer ones."""


def long_names(found: dict[str, Setting]) -> dict[str, Setting]:
    """Options of a launcher with the long name of each that stands there under a short one alone."""
    named = dict(found)
    for name, shorts in _SHORT.items():
        for short in shorts:
            if short in named and name not in named:
                named[name] = named.pop(short)
    return named


def read_recipe(launch: Launch, job: ImportJob, draft: Draft, *, preset: str) -> Imported:
    """The scenario of a launcher's options over a recipe.

    Raises:
        ScenarioError: what is asked or refused.
    """
    found = long_names(dict(launch.header) | dict(launch.options))
    settings = Settings(
        found={name: one for name, one in found.items() if str(one.value) not in ("None", "null")},
        given=job.given,
        draft=draft,
    )
    recipe = settings.text("model_recipe_name", "model_name")
    size = settings.text("model_size")
    named = RECIPES.get(str(recipe).lower()) or (RECIPES.get(f"{recipe}_{size}".lower()) if size else None)
    put_recipe_model(settings, named, recipe, settings.origin("model_recipe_name", "model_name"), job.files)
    return recipe_scenario(settings, preset)


def put_recipe_model(
    settings: Settings, known: str | None, recipe: str | None, origin: str, files: tuple[SourceFile, ...]
) -> bool:
    """Put the model of a recipe, ``known`` of the catalogue or else the one that is given; whether it has
    experts."""
    if settings.given.get("model") is None and known:
        settings.draft.put("model.preset", known, origin)
    else:
        put_named_model(settings, recipe, origin, files)
    return _has_experts(settings.draft.get("model.preset"))


def recipe_scenario(settings: Settings, preset: str, launch: Launch | None = None) -> Imported:
    """The scenario of a workload: the options of Megatron-Bridge's WorkloadBaseConfig, by their long names.
    The number of GPUs is an option, or that of the ``launch`` where there is one.

    Raises:
        ScenarioError: what is asked or refused.
    """
    draft = settings.draft
    if (layers := settings.integer("num_layers")) is not None and draft.get("model.preset"):
        settings.put("model.num_layers", layers, "num_layers")
    known, wide = draft.get("model.preset"), settings.integer("hidden_size")
    if wide is not None and known in model_names() and get_model(known).hidden_size != wide:
        settings.refuse("hidden_size", f"{known} is {get_model(known).hidden_size} wide; give the model")
    draft.put("model.make_vocab_size_divisible_by", 128, f"{RECIPE}: should_pad_vocab")
    draft.put("software.preset", preset, draft.framework)
    each = settings.setting("gpus_per_node")
    if launch is None:
        gpus = world_size(settings, None, None, settings.setting("num_gpus"))
    else:
        gpus = world_size(settings, launch.nodes, launch.per_node, launch.world)
    if each is not None:
        draft.put("cluster.gpus_per_node", settings.integer("gpus_per_node"), each.origin)
    _layout(settings)
    _training(settings)
    _overlaps(settings)
    told = settings.text("gpu") if settings.given.get("gpu") is None else None
    known = GPUS.get(str(told).lower()) if told else None
    put_machine(settings, known, settings.origin("gpu"))
    name, each_host = draft.get("cluster.gpu"), draft.get("cluster.gpus_per_node")
    used = slurm_segment(name, gpus, each_host) if name and gpus and each_host else None
    if used is not None and draft.get("cluster.gpus_per_domain") is None:
        draft.put("cluster.gpus_per_domain", used, f"{RECIPE}: --segment of the launcher")
    if settings.flag("packed_sequence"):  # Megatron-Bridge's guide of packed sequences: cu_seqlens
        draft.note(PACKED)
    settle(settings, "recipes")
    return draft.finished()


def _layout(settings: Settings) -> None:
    """The parallelism of a recipe: sizes of groups, chunks of the pipeline, and what is sharded."""
    draft = settings.draft
    sizes = _sizes(settings)
    _expert_sizes(settings, sizes["ep"])
    if sizes["tp"] > 1:
        settings.put(
            "parallelism.sequence_parallel",
            settings.flag("sequence_parallel", default=True),
            "sequence_parallel",
            default=f"{RECIPE}: wherever tensors are split",
        )
    settings.setting("sequence_parallel")
    chunks = settings.integer("virtual_pipeline_model_parallel_size", default=1) or 1
    if sizes["pp"] > 1:
        settings.put("parallelism.vpp", chunks, "virtual_pipeline_model_parallel_size", default=RECIPE)
        draft.put(
            "schedule", "interleaved" if chunks > 1 else "1f1b", "Megatron's schedule for so many chunks"
        )
        _stages(settings, sizes["pp"], chunks)
    fsdp = settings.flag("use_megatron_fsdp") or settings.flag("fsdp")
    settings.put(
        "parallelism.zero",
        3 if fsdp else 1,
        "use_megatron_fsdp",
        default=f"{RECIPE}: the distributed optimizer",
    )
    settings.setting("nccl_ub")


def _sizes(settings: Settings) -> dict[str, int]:
    """Put in the size of each parallel group, and return them by axis. Where the recipe leaves out tensor or
    pipeline parallelism, they are asked for."""
    draft, sizes = settings.draft, {}
    for axis, name in (
        ("tp", "tensor_model_parallel_size"),
        ("pp", "pipeline_model_parallel_size"),
        ("cp", "context_parallel_size"),
        ("ep", "expert_model_parallel_size"),
    ):
        value = settings.integer(name)
        if value is None and not settings.has(name):
            if axis in ("tp", "pp"):
                draft.ask(name, "the recipe's layout stands in its own table, and not in the file", "1")
            value = 1
        sizes[axis] = max(1, value or 1)
        settings.put(f"parallelism.{axis}", sizes[axis], name, default=RECIPE)
    return sizes


def _expert_sizes(settings: Settings, ep: int) -> None:
    """How experts are cut; a model without experts has neither of both sizes, whatever the recipe says."""
    draft = settings.draft
    etp = settings.integer("expert_tensor_parallel_size")
    if ep > 1 or etp:
        settings.put("parallelism.etp", etp or 1, "expert_tensor_parallel_size", default=f"{RECIPE}: 1")
    if draft.get("model.preset") and not _has_experts(draft.get("model.preset")):
        draft.put("parallelism.ep", 1, "the model has no experts")
        draft.put("parallelism.etp", 1, "the model has no experts")


def _has_experts(name: str | None) -> bool:
    return name in model_names() and get_model(name).moe is not None


def _stages(settings: Settings, pp: int, chunks: int) -> None:
    """Layers that do not fill the chunks: the recipe's own layout, or embedding and loss as layers."""
    draft = settings.draft
    layout = settings.text("pipeline_model_parallel_layout", "pp_layout")
    name = draft.get("model.preset")
    layers = draft.get("model.num_layers") or (get_model(name).num_layers if name in model_names() else None)
    if layout:
        put_stage_layout(settings, layout, layers or 0, pp)
    elif layers and layers % (pp * chunks):
        even = (layers + 2) % (pp * chunks) == 0
        draft.put(
            "parallelism.stage_split",
            "embedding_and_loss_as_layers" if even else "uneven_unspecified",
            f"{RECIPE}: {layers} layers on {pp * chunks} chunks",
        )


_FP8_RECIPES = {
    "ds": ("fp8", "delayed"),
    "cs": ("fp8", "current"),
    "mxfp8": ("mxfp8", None),
    "ss": ("fp8", "blockwise"),
    "mx": ("mxfp8", None),
}
"""Launchers' short names: the precision, and how FP8 is scaled."""


def _training(settings: Settings) -> None:
    _put_sequences(settings)
    _put_precision(settings)
    _put_recompute(settings)
    names = ("activation_offload_layers", "cpu_offloading_num_layers")
    if settings.integer(*names, default=0):
        settings.refuse(
            next(one for one in names if settings.has(one)),
            "activations of some layers on the host are not modelled; of all layers they are",
        )
    if settings.flag("use_tokendrop"):
        settings.put("model.moe.capacity_factor", 1.0, "use_tokendrop")


def _put_sequences(settings: Settings) -> None:
    """Put microbatch, batch and sequence length: all but the first have to be stated."""
    for field, name, example in (
        ("micro_batch", "micro_batch_size", None),
        ("global_batch", "global_batch_size", "512"),
        ("seq_length", "seq_length", "4096"),
    ):
        value = settings.integer(name)
        if value is None and not settings.has(name):
            if example is None:
                value = 1
            else:
                settings.draft.ask(name, "the recipe says it, and not the file", example)
        settings.put(f"training.{field}", value, name, default=f"{RECIPE}: 1")


def _put_precision(settings: Settings) -> None:
    draft = settings.draft
    kind, scaling = settings.choice("compute_dtype", among=PRECISIONS, default=("bf16", None))
    if not settings.has("compute_dtype"):
        draft.ask("compute_dtype", "the precision is an option of the launcher", "bf16")
    recipe = settings.choice("fp8_recipe", among=_FP8_RECIPES, default=None)
    if kind == "fp8" and recipe:
        kind, scaling = recipe
    settings.put("training.precision", kind, "compute_dtype")
    settings.put("software.kernels.fp8_scaling", scaling, "compute_dtype")


def _put_recompute(settings: Settings) -> None:
    draft = settings.draft
    modules = settings.setting("recompute_modules")
    count = settings.integer("recompute_num_layers", default=0) or 0
    if modules is not None and modules.value not in (True, [], ""):
        named = (
            modules.value if isinstance(modules.value, list) else str(modules.value).replace(",", " ").split()
        )
        listed = [str(one).strip("[]'\" ,") for one in named]
        draft.put(
            "training.recompute",
            "selective" if listed == ["core_attn"] else {"kind": "modules", "modules": listed},
            modules.origin,
        )
    elif count:
        settings.put(
            "training.recompute", {"kind": "full", "method": "block", "layers": count}, "recompute_num_layers"
        )
    elif settings.text("recompute_granularity") == "selective":
        settings.put("training.recompute", "selective", "recompute_granularity")


def _overlaps(settings: Settings) -> None:
    draft = settings.draft
    impl = settings.text("cuda_graph_impl")
    graphs = (
        impl not in (None, "none", "None")
        if settings.has("cuda_graph_impl")
        else settings.flag("cuda_graphs")
    )
    if settings.has("cuda_graph_impl", "cuda_graphs"):
        settings.put("software.host.cuda_graphs", graphs, "cuda_graph_impl", "cuda_graphs")
    if settings.has("moe_a2a_overlap"):
        settings.put("software.exchange.moe_a2a_overlap", settings.flag("moe_a2a_overlap"), "moe_a2a_overlap")
    put_router_loss(settings)
    # In recipes' Python, and in no file: --given says it. Of flex's backends Hopper has DeepEP there.
    flexible = "deepep" if str(draft.get("cluster.gpu", "")).startswith("H") else "hybridep"
    way = settings.choice("moe_token_dispatcher_type", among={"alltoall": "alltoall", "flex": flexible})
    settings.put("software.exchange.moe_dispatcher", way, "moe_token_dispatcher_type")
    if way == "deepep" and draft.get("model.mla") is None:
        experimental = "only recipes with latent attention set enable_megatron_core_experimental"
        draft.put("software.exchange.arrivals_indexed_by_torch", True, experimental)
    if draft.get("software.host.cuda_graphs", get_software(draft.get("software.preset")).host.cuda_graphs):
        put_scopes(settings)
    settings.setting(*SCOPE_NAMES)
    if draft.get("parallelism.tp", 1) == 1:
        draft.put("software.exchange.tp_comm_overlap", False, "there is no tensor parallelism")


def setting_of(name: str, value: object, file: str, line: int = 0) -> Setting:
    """A setting of a workload's table."""
    return Setting(value=value, file=file, name=name, line=line)
