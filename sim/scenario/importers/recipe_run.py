"""Command lines of Megatron-Bridge's ``run_recipe.py``: a recipe by name, and overrides of its fields.

Knows how overrides are written, and what its recipes have in common; sizes that a recipe's Python sets and
the command does not override are asked for.

Sources: NVIDIA-NeMo/Megatron-Bridge scripts/training/run_recipe.py and recipes/llama/llama3.py (v0.3),
training/mixed_precision.py.
"""

from __future__ import annotations

import re

from .arguments import Launch, options_of
from .draft import Draft, Imported
from .importer import ImportJob
from .plain_names import plain_name
from .recipes import RECIPES, long_names, put_recipe_model, recipe_scenario
from .settings import Setting, Settings
from .sources import SourceFile

_OVERRIDE = re.compile(r"\+{0,2}([A-Za-z_]\w*(?:\.\w+)*)=(.*)", re.DOTALL)
_RECIPE = re.compile(r"run_recipe\.py\b|--recipe[=\s]+\S+_config\b")
_TASK = re.compile(r"_(?:pretrain|finetune|sft)?(?:_[0-9]+gpu_\w+)?_?config\Z")
_MEASURED = re.compile(r"_[0-9]+gpu_\w+_config\Z")
"""Recipes of benchmarks, whose names have GPUs and precision: what is common to the others is not theirs."""

_SAME = {
    "sequence_length": "seq_length",
    "mixed_precision": "compute_dtype",
    "overlap_moe_expert_parallel_comm": "moe_a2a_overlap",
}
"""Fields of the configuration that launchers' options call otherwise."""

_PRECISIONS = {
    "bf16_mixed": "bf16",
    "fp16_mixed": "fp16",
    "bf16_with_fp8_delayed_scaling_mixed": "fp8_ds",
    "bf16_with_fp8_current_scaling_mixed": "fp8_cs",
    "bf16_with_fp8_subchannel_scaling_mixed": "fp8_sc",
    "bf16_with_mxfp8_mixed": "fp8_mx",
    "bf16_with_nvfp4_mixed": "nvfp4",
}
"""``mixed_precision``: the same as an option of launchers (mixed_precision.py)."""

_COMMON = {
    "compute_dtype": ("mixed_precision", "bf16"),
    "cuda_graph_impl": ("model.cuda_graph_impl", "none"),
    "grad_reduce_in_fp32": ("ddp.grad_reduce_in_fp32", True),
}
"""What recipes for pretraining have alike, unless the command overrides it."""


def is_recipe_run(file: SourceFile) -> bool:
    """Whether a script or a list of arguments starts a recipe by its name."""
    return _RECIPE.search(file.command) is not None


def read_recipe_run(
    launch: Launch, file: SourceFile, job: ImportJob, draft: Draft, *, preset: str
) -> Imported:
    """The scenario of a recipe with overrides.

    Raises:
        ScenarioError: what is asked or refused.
    """
    settings = Settings(found=_found(launch, file), given=job.given, draft=draft)
    named = settings.found.pop("model", None)  # its recipe without what is trained; --given model is another
    if named is not None:
        settings.found.setdefault("recipe", named)
    recipe = settings.text("recipe") or ""
    for name, (shown, value) in _COMMON.items():
        if not _MEASURED.search(recipe):
            settings.found.setdefault(
                name, Setting(value=value, file="Megatron-Bridge's recipes", name=shown)
            )
    settings.refuse_if("peft_scheme", "adapters are not modelled", harmless=(None, "None", ""))
    if "peft" in recipe or "lora" in recipe:
        settings.refuse("recipe", "adapters are not modelled")
    if settings.text("mode", default="pretrain") in ("lora", "dora"):
        settings.refuse("mode", "adapters are not modelled")
    model = _TASK.sub("", recipe)
    experts = put_recipe_model(
        settings, RECIPES.get(model.lower()), model, settings.origin("recipe"), job.files
    )
    for name, needed in (
        ("context_parallel_size", True),
        ("micro_batch_size", True),
        ("expert_model_parallel_size", experts),
    ):
        if needed and not settings.has(name):
            draft.ask(name, "the recipe's Python says it, and not the file", "1")
    if settings.has("grad_reduce_in_fp32"):
        width = 4 if settings.flag("grad_reduce_in_fp32") else 2
        settings.put("software.gradients.main_grad_bytes", width, "grad_reduce_in_fp32")
    draft.note("what the command does not override stands in the recipe's Python: no recomputation is taken")
    return recipe_scenario(settings, preset, launch)


def _found(launch: Launch, file: SourceFile) -> dict[str, Setting]:
    """Options and overrides by plain name; of two overrides the last one holds, as in Hydra."""
    overrides = [one for word in launch.words if (one := _OVERRIDE.fullmatch(word))]
    rest = [word for word in launch.words if not _OVERRIDE.fullmatch(word)]
    found = long_names(options_of(rest, file)[0])
    # The length of the data set is the model's (run_recipe.py, main).
    for one in sorted(overrides, key=lambda found: found[1].startswith("dataset.")):
        name = plain_name(one[1].rpartition(".")[2])
        value = _PRECISIONS.get(one[2], one[2]) if name == "mixed_precision" else one[2].strip("\"'")
        # "none" is a way to balance experts; of every other field it is no value.
        if value.lower() not in ("none", "null") or (name, value) == (
            "moe_router_load_balancing_type",
            "none",
        ):
            line = file.line_of(one[1])
            found[_SAME.get(name, name)] = Setting(value=value, file=file.name, name=one[1], line=line)
    return found
