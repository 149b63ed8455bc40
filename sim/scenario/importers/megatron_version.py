"""The version of Megatron-LM that a script is for: the stated one, or the one that its options show.

Versions are pairs that compare: (2, 5) is v2.5, (3, 0) what is called v3.0 and 2022, (3, 1) 23.04, and (4, n)
Megatron core 0.n.

Source: NVIDIA/Megatron-LM megatron/arguments.py at v2.0, v2.5, 23.04, core_v0.4.0;
megatron/training/arguments.py at core_v0.8.0, core_v0.12.0 and d98e8a64.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .settings import Settings

Version = tuple[int, int]

NEWEST: Version = (4, 18)

SINCE: dict[str, Version] = {
    "num_layers_per_virtual_pipeline_stage": (2, 5), "use_distributed_optimizer": (3, 0),
    "sequence_parallel": (3, 0),
    "recompute_granularity": (3, 0), "recompute_activations": (3, 0), "use_flash_attn": (3, 1),
    "swiglu": (3, 1),
    "transformer_impl": (3, 1), "overlap_grad_reduce": (4, 4), "overlap_param_gather": (4, 4),
    "context_parallel_size": (4, 4), "tp_comm_overlap": (4, 4), "use_mcore_models": (4, 4),
    "expert_model_parallel_size": (4, 4), "fp8_format": (4, 4), "group_query_attention": (4, 2),
    "decoder_first_pipeline_num_layers": (4, 9), "decoder_last_pipeline_num_layers": (4, 9),
    "moe_shared_expert_overlap": (4, 10), "cp_comm_type": (4, 10), "expert_tensor_parallel_size": (4, 10),
    "use_torch_fsdp2": (4, 10), "num_virtual_stages_per_pipeline_rank": (4, 11),
    "use_precision_aware_optimizer": (4, 11),
    "account_for_embedding_in_pipeline_split": (4, 11), "recompute_modules": (4, 12), "fp8_recipe": (4, 12),
    "moe_enable_deepep": (4, 12), "grad_reduce_in_bf16": (4, 12), "mtp_num_layers": (4, 12),
    "use_custom_fsdp": (4, 12),
    "pipeline_model_parallel_layout": (4, 13), "delay_wgrad_compute": (4, 13), "use_megatron_fsdp": (4, 14),
    "overlap_moe_expert_parallel_comm": (4, 14), "cuda_graph_impl": (4, 15),
    "fine_grained_activation_offloading": (4, 16),
    "moe_flex_dispatcher_backend": (4, 16),
}  # fmt: skip
"""Options that tell a version: it has them from then on."""

UNTIL: dict[str, tuple[Version, str]] = {
    "checkpoint_activations": ((2, 9), "--recompute-granularity full, and --recompute-method"),
    "checkpoint_num_layers": ((2, 9), "--recompute-num-layers"),
    "activations_checkpoint_method": ((3, 0), "--recompute-method"),
    "activations_checkpoint_num_layers": ((3, 0), "--recompute-num-layers"),
    "ddp_impl": ((3, 1), "nothing: local is what remains"),
    "data_impl": ((3, 1), "nothing: mmap is what remains"),
}
"""Options that later versions have no more, and what took their place."""

RENAMED = {
    "batch_size": ("--micro-batch-size", (2, 0)),
    "model_parallel_size": ("--tensor-model-parallel-size", (2, 0)),
}
"""Options that end in an error since v2.0."""


@dataclass(frozen=True, kw_only=True)
class Megatron:
    """A version, how it is called, and the preset of software whose facts fit it."""

    version: Version
    shown: str

    @property
    def preset(self) -> str:
        """The software preset (sim/scenario/software/presets.yaml)."""
        for until, name in (
            ((2, 9), "megatron-2021"),
            ((3, 0), "megatron-2022-sp"),
            ((4, 3), "megatron-2023"),
        ):
            if self.version <= until:
                return name
        return "megatron-core-2024" if self.version < (4, 10) else "megatron-core-2025"

    @property
    def is_core(self) -> bool:
        """Whether its layers are those of Megatron core with TransformerEngine by default (core 0.6 on)."""
        return self.version >= (4, 6)


def parse_version(text: str) -> Version:
    """The version that a release, a branch or a year is.

    >>> [parse_version(name) for name in ("v2.5", "23.04", "core_v0.12.1", "core_r0.9")]
    [(2, 5), (3, 1), (4, 12), (4, 9)]

    Raises:
        ValueError: it is none.
    """
    plain = text.strip().lower()
    if plain in ("head", "main", "dev", "latest"):
        return NEWEST
    if found := re.fullmatch(r"(?:core_?)?[vr]?0\.(\d{1,2})(?:\..*)?", plain):
        return (4, int(found[1]))
    if found := re.fullmatch(r"v?([12])\.(\d)(?:\..*)?", plain):
        return (2, int(found[2]))
    if re.fullmatch(r"v?3\.0(?:\.0)?|2022", plain):
        return (3, 0)
    if re.fullmatch(r"v?3\.0\.[12]|23\.\d\d|2023", plain):
        return (3, 1)
    raise ValueError(f"version {text}: no Megatron-LM is called so; write v2.5, 23.04, core_v0.12.0 or HEAD")


def version_of(settings: Settings, told: str | None) -> Megatron:
    """The stated version, else the newest one that has all options of the script."""
    names = set(settings.found)
    if told is not None:
        return Megatron(version=parse_version(told), shown=told)
    least = max((SINCE[name] for name in names & SINCE.keys()), default=(2, 0))
    most = min((UNTIL[name][0] for name in names & UNTIL.keys()), default=NEWEST)
    version = max(least, most)
    shown = "the newest that is known" if version == NEWEST else f"as of {_shown(version)}"
    settings.draft.note(
        f"the version of Megatron-LM is not stated; its options suggest {shown} (--framework-version sets it)"
    )
    return Megatron(version=version, shown=_shown(version))


def _shown(version: Version) -> str:
    return (
        f"core_v0.{version[1]}.0"
        if version[0] == 4
        else {(3, 0): "v3.0", (3, 1): "23.04"}.get(version, f"v2.{version[1]}")
    )


def refuse_strangers(settings: Settings, megatron: Megatron) -> None:
    """Refuse options that the version has no more, each with what took its place."""
    for name, (until, instead) in UNTIL.items():
        if name in settings.found and megatron.version > until and name not in ("ddp_impl", "data_impl"):
            settings.refuse(name, f"{megatron.shown} ends on this option; in its place it has {instead}")
    for name, (instead, _) in RENAMED.items():
        if name in settings.found:
            settings.refuse(name, f"Megatron-LM ends on this option since v2.0; write {instead}")
