"""What a software stack does: which kernels it has, what it overlaps, what its host costs, in six groups.

A preset (presets.yaml beside this file) is chosen by name; a scenario may override single fields. A field is
a fact about the software, with its source, but for three of ``host`` that are fitted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from .exchange import ExchangeSoftware
from .gradients import GradientSoftware
from .group import SoftwareGroup
from .host import HostSoftware
from .kernels import KernelSoftware
from .pipeline import PipelineSoftware
from .sharding import ShardingSoftware


class Software(SoftwareGroup):
    """One software stack: facts of the code named in ``source``, by the part of a step that reads them."""

    name: str = Field(default="custom", description="how results call it")
    title: str = Field(default="", description="what it is, in words")
    source: str = Field(default="", description="the code that it is read from")
    read: bool = Field(
        default=True,
        description="its own code was read; false, as where a block names no preset: it is what trainers of"
        " its kind have in common, and the interval holds as much as reading theirs has moved steps",
    )
    kernels: KernelSoftware = Field(default=KernelSoftware(), description="which kernels it has")
    gradients: GradientSoftware = Field(
        default=GradientSoftware(), description="how gradients are kept and reduced"
    )
    pipeline: PipelineSoftware = Field(
        default=PipelineSoftware(), description="how stages send to one another"
    )
    host: HostSoftware = Field(default=HostSoftware(), description="what its host costs and waits for")
    sharding: ShardingSoftware = Field(
        default=ShardingSoftware(), description="how sharded parameters are gathered"
    )
    exchange: ExchangeSoftware = Field(
        default=ExchangeSoftware(), description="what tensor, context and expert parallelism overlap"
    )

    def with_fields(self, **fields: Any) -> Software:
        """This stack with other fields, by their names alone (no two groups share one). Checks no values."""
        changed = {
            group: getattr(self, group).model_copy(update=own) for group, own in grouped(fields).items()
        }
        return self.model_copy(update=changed)


GROUPS: dict[str, type[SoftwareGroup]] = {
    name: info.annotation
    for name, info in Software.model_fields.items()
    if isinstance(info.annotation, type) and issubclass(info.annotation, SoftwareGroup)
}
"""The groups of a stack by the name of their block."""

GROUP_OF: dict[str, str] = {field: group for group, kind in GROUPS.items() for field in kind.model_fields}
"""The group of each field."""


def grouped(fields: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Fields by their names alone, as the blocks of their groups.

    >>> grouped({"attention": "fa2", "cuda_graphs": True, "fused_norm": False})
    {'kernels': {'attention': 'fa2', 'fused_norm': False}, 'host': {'cuda_graphs': True}}
    """
    blocks: dict[str, dict[str, Any]] = {}
    for name, value in fields.items():
        blocks.setdefault(GROUP_OF[name], {})[name] = value
    return blocks


REPLACED = {
    "align_grad_reduce": "gradients.reduction: megatron-buckets",
    "bucket_elements_per_replica": "gradients.reduction: megatron-buckets",
    "uncut_parameters": "gradients.reduction: nanotron-buckets",
    "reduce_scatter_blocks": "gradients.reduction: nanotron-buckets",
    "bf16_main_grad_bytes": "gradients.wrapper: deepspeed",
    "flat_buffer_elements": "gradients.wrapper: deepspeed",
    "bf16_flat_buffer_elements": "gradients.wrapper: deepspeed",
    "fp32_update_gradients": "gradients.wrapper: deepspeed",
    "casts_fresh_gradients": "gradients.wrapper: deepspeed",
    "bf16_zero1_reduce_scatters": "gradients.wrapper: deepspeed",
}
"""Fields of earlier versions that only one framework had, by the behaviour that says the same."""
