"""``megatron pt`` and ``megatron sft`` of ms-swift as a run of Megatron core, by its own defaults.

Sources: modelscope/ms-swift swift/megatron/arguments/megatron_args.py (006938be, version 4),
swift/megatron/argument/megatron_args.py (00840e65, version 3).
"""

from __future__ import annotations

from collections.abc import Mapping

from ..model.catalogue import model_called, model_names
from .arguments import Launch
from .cluster_facts import put_machine, put_segment
from .draft import Imported
from .importer import ImportJob
from .leftovers import settle
from .megatron_layout import put_layout
from .megatron_model import put_capacity
from .megatron_software import put_software
from .megatron_version import Megatron
from .model_facts import put_catalogue_model, put_named_model
from .settings import Setting, Settings

_DEFAULTS: Mapping[str, object] = {
    "micro_batch_size": 1,
    "global_batch_size": 16,
    "recompute_granularity": "selective",
    "attention_backend": "flash",
    "use_distributed_optimizer": True,
    "expert_tensor_parallel_size": 1,
    "moe_token_dispatcher_type": "alltoall",
    "moe_grouped_gemm": True,
}
"""Where ms-swift has another default than Megatron-LM, in versions 3 and 4."""

_OF_VERSION: Mapping[int, Mapping[str, object]] = {
    3: {},
    4: {
        "cross_entropy_loss_fusion": True,
        "apply_rope_fusion": False,
        "data_parallel_sharding_strategy": "optim_grads_params",
    },
}

_CORE = {
    3: Megatron(version=(4, 13), shown="core 0.12 to 0.15, as in ms-swift 3"),
    4: Megatron(version=(4, 16), shown="core 0.16, as in ms-swift 4"),
}

_RENAMED = {
    "max_length": "seq_length",
    "virtual_pipeline_model_parallel_size": "num_virtual_stages_per_pipeline_rank",
    "bias_activation_fusion": "bias_swiglu_fusion",
}
"""Arguments of ms-swift that Megatron-LM calls otherwise."""


def megatron_scenario(
    settings: Settings, job: ImportJob, launch: Launch, gpus: int | None, era: int
) -> Imported:
    """The scenario of a run on Megatron core, by the arguments of ms-swift of version ``era``.

    Raises:
        ScenarioError: what is asked or refused.
    """
    found, megatron = settings.found, _CORE[era]
    for name, other in _RENAMED.items():
        if name in found:
            found[other] = found.pop(name)
    if not _put_model(settings, job):
        put_machine(settings)
        return settings.draft.finished()  # what follows from the model would be asked, too
    _put_precision(settings)
    for name, value in {**_DEFAULTS, **_OF_VERSION[era]}.items():
        found.setdefault(name, own_default(name, value))
    latent = settings.draft.get("model.attention") == "mla"
    if era == 3 and latent and not settings.has("no_rope_fusion"):
        found["no_rope_fusion"] = own_default("no_rope_fusion, of latent attention", True)
    put_layout(settings, megatron, gpus)
    put_software(settings, megatron, launch.environment)
    put_machine(settings)
    put_segment(settings, launch.segment)
    settle(settings, "ms-swift", "megatron-lm")
    return settings.draft.finished()


def own_default(name: str, value: object) -> Setting:
    """A default of ms-swift, as what a user has set."""
    return Setting(value=value, file="ms-swift", name=f"its {name}")


def _put_model(settings: Settings, job: ImportJob) -> bool:
    """Put the model by its name on a hub, or of the folder of converted weights, with what is trained of it;
    whether one is known."""
    draft, given = settings.draft, job.given.get("model")
    told = settings.setting("model", "load", "mcore_model")
    name = None if told is None else str(told.value).rstrip("/").removesuffix("-mcore")
    known = given if given in model_names() else model_called(name) if name and given is None else None
    has_config = any(one.kind == "json" and one.at("model_type") is not None for one in job.files)
    origin = f"--given model={given}" if given else told.origin if told else ""
    if known and not has_config:
        put_catalogue_model(settings, known, origin)
    else:
        put_named_model(settings, name, origin, job.files)
    settings.text("model_type", "model_name")
    if not draft.get("model.num_layers"):
        return False
    settings.put(
        "model.mtp_layers",
        settings.integer("mtp_num_layers", default=0),
        "mtp_num_layers",
        default="ms-swift trains none unless told",
    )
    draft.put("model.make_vocab_size_divisible_by", 1, "ms-swift: the rows of config.json")
    settings.put(
        "model.dropout",
        settings.number("hidden_dropout", default=0.0),
        "hidden_dropout",
        default="ms-swift: its hidden_dropout 0",
    )
    if draft.get("model.moe"):
        put_capacity(settings)
    return True


def _put_precision(settings: Settings) -> None:
    """16 bit by the type of the weights, BF16 unless that is another, where no argument says it."""
    dtype = settings.text("torch_dtype", default="bfloat16")
    kind = "fp16" if dtype in ("float16", "float32") else "bf16"
    if not settings.has("fp16", "bf16"):
        settings.found[kind] = own_default(f"{kind}, by torch_dtype", True)
