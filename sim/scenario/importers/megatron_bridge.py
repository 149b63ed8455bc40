"""Megatron-Bridge: launchers of its performance recipes, and the YAML of v0.1 with a table of workloads.

Sources: NVIDIA-NeMo/Megatron-Bridge scripts/performance/configs (v0.1.0rc4 YAML), argument_parser.py;
recipes.py; recipe_run.py.
"""

from __future__ import annotations

import re
from typing import Any

from .draft import Draft, Imported
from .importer import Importer, ImportJob
from .launchers import launch_among
from .model_facts import put_named_model
from .recipe_run import is_recipe_run, read_recipe_run
from .recipes import GPUS, RECIPES, read_recipe, recipe_scenario, setting_of
from .settings import Settings
from .sources import SourceFile

_LONG = {
    "tp": "tensor_model_parallel_size", "pp": "pipeline_model_parallel_size",
    "cp": "context_parallel_size", "vp": "virtual_pipeline_model_parallel_size",
    "ep": "expert_model_parallel_size", "etp": "expert_tensor_parallel_size", "mbs": "micro_batch_size",
    "gbs": "global_batch_size",
    "num_gpus_per_node": "gpus_per_node", "fsdp": "use_megatron_fsdp",
}  # fmt: skip


def _recognises(file: SourceFile) -> bool:
    if file.is_command:
        named = re.search(r"(--model_recipe_name|\s-mr)[\s=]", file.command)
        return named is not None or is_recipe_run(file)
    return "perf_matrix" in file.keys or "ConfigContainer" in file.keys


def read_bridge(job: ImportJob) -> Imported:
    """The scenario of a Megatron-Bridge run.

    Raises:
        ScenarioError: what is asked or refused.
    """
    first = job.first(_recognises)
    draft = Draft(framework="megatron-bridge", file=job.name, version=job.version or "")
    if first.is_command:
        launch, preset = launch_among(first, job.files, job.given, draft), "megatron-bridge-2026"
        if is_recipe_run(first):
            return read_recipe_run(launch, first, job, draft, preset=preset)
        return read_recipe(launch, job, draft, preset=preset)
    draft.version = job.version or "v0.1.0"
    settings = Settings(found={}, given=job.given, draft=draft)
    if not _workload(settings, first):
        return draft.finished()
    name = first.name.removesuffix(".yaml").removesuffix("_llm_pretrain").removesuffix("_pretrain")
    if name in RECIPES and job.given.get("model") is None:
        draft.put("model.preset", RECIPES[name], f"the name of {first.name}")
    else:
        put_named_model(settings, name, first.name, job.files)
    container: dict[str, Any] = first.at("ConfigContainer") or {}
    if isinstance(container, dict):
        _container(settings, container)
    return recipe_scenario(settings, "megatron-bridge-2025")


def _workload(settings: Settings, file: SourceFile) -> bool:
    """Whether there is a row of ``perf_matrix`` for the GPU, their number and the precision that are given;
    its settings are then those of the run."""
    draft, matrix = settings.draft, file.at("perf_matrix")
    if not isinstance(matrix, dict):
        draft.refuse("perf_matrix", "the file has no table of workloads, which holds the layout")
        return False
    gpu = _gpu_of_table(settings, matrix)
    count = _count_of_table(settings, matrix[gpu]) if gpu else None
    if not gpu or count is None:
        return False
    name = next(name for name in matrix[gpu] if _count_in(name) == count)
    row, where = matrix[gpu][name], f"perf_matrix.{gpu}.{name}"
    kinds = [kind for kind in row if kind != "common"] if isinstance(row, dict) else []
    kind = settings.given.get("compute_dtype")
    if kind not in kinds:
        draft.ask(
            "compute_dtype", f"the table has {', '.join(map(str, kinds))}", str(kinds[0]) if kinds else "bf16"
        )
        return False
    common, own = row.get("common") or {}, row.get(kind) or {}
    if not isinstance(common, dict) or not isinstance(own, dict):
        draft.refuse(f"perf_matrix.{gpu}", "settings with names are needed here")
        return False
    for key, value in {**common, **own}.items():
        if value is not None:
            line = file.lines.get(f"{where}.{kind if key in own else 'common'}.{key}", 0)
            settings.found[_LONG.get(key, key)] = setting_of(key, value, file.name, line)
    gpus = int(count) if count.isdigit() else count
    settings.found["num_gpus"] = setting_of(str(name), gpus, file.name)
    settings.found["compute_dtype"] = setting_of("compute_dtype", kind, file.name)
    return True


def _gpu_of_table(settings: Settings, matrix: dict[Any, Any]) -> Any:
    """The table's name of the GPU that is given; None, with what is missing asked or refused."""
    told, names = settings.given.get("gpu"), ", ".join(map(str, matrix))
    if told is None:
        settings.draft.ask("gpu", f"the table has {names}", "h100")
        return None
    gpu = next((one for one in matrix if one == told.lower() or GPUS.get(str(one)) == told), None)
    if gpu is None or not isinstance(matrix[gpu], dict):
        settings.draft.refuse("gpu", f"the table has {names}, and not {told}")
        return None
    return gpu


def _count_of_table(settings: Settings, rows: dict[Any, Any]) -> str | None:
    """The number of GPUs of the row to read: what is given, or the only one there is; None where that has to
    be asked."""
    given, counts = settings.given.get("gpus"), [_count_in(name) for name in rows]
    if given in counts or (not given and len(counts) == 1):
        return given or counts[0]
    if given and len(counts) == 1 and given.isdigit():
        settings.draft.note(
            f"the recipe's table is for {counts[0]} GPUs; its batch is kept for any number of GPUs"
        )
        return counts[0]
    settings.draft.ask("gpus", f"the table has {', '.join(counts)} GPUs", next(iter(counts), "8"))
    return None


def _count_in(name: Any) -> str:
    """``64`` of ``num_gpus_64``."""
    return str(name).removeprefix("num_gpus_")


def _container(settings: Settings, container: dict[str, Any]) -> None:
    """``ConfigContainer``: what it says beside the recipe."""
    draft = settings.draft
    model, mixed = container.get("model") or {}, container.get("mixed_precision") or {}
    if isinstance(model, dict) and model.get("recompute_granularity") == "full":
        draft.put("training.recompute", "full", "ConfigContainer.model.recompute_granularity")
    elif isinstance(model, dict) and model.get("recompute_granularity") == "selective":
        settings.found.setdefault(
            "recompute_granularity",
            setting_of("ConfigContainer.model.recompute_granularity", "selective", draft.file),
        )
    if isinstance(mixed, dict) and "grad_reduce_in_fp32" in mixed:
        draft.put(
            "software.gradients.main_grad_bytes",
            4 if mixed["grad_reduce_in_fp32"] is True else 2,
            "ConfigContainer.mixed_precision.grad_reduce_in_fp32",
        )
    for name in ("moe_aux_loss_coeff", "moe_router_load_balancing_type"):
        if isinstance(model, dict) and model.get(name) is not None:
            settings.found.setdefault(
                name, setting_of(f"ConfigContainer.model.{name}", model[name], draft.file)
            )
    if isinstance(model, dict) and model.get("moe_router_fusion") is True:
        draft.put("software.kernels.moe_router_fusion", True, "ConfigContainer.model.moe_router_fusion")


IMPORTER = Importer(
    name="megatron-bridge",
    title="Megatron-Bridge",
    source="NVIDIA-NeMo/Megatron-Bridge scripts/performance (v0.1.0rc4 to v0.4.2), "
    "src/megatron/bridge/training",
    recognises=_recognises,
    read=read_bridge,
    order=21,
)
