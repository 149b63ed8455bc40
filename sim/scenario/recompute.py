"""What runs again in the backward, as a scenario asks for it: by a word, or part by part.

Knows fields; what each software can do of them is checked in checks_recompute.py.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ...hardware.fields import Layers

RecomputeKind = Literal["none", "selective", "full", "op_selective"]
RecomputeModule = Literal[
    "core_attn", "layernorm", "mlp", "moe", "moe_act", "mla_up_proj", "shared_experts"
]  # fmt: skip
RecomputeOperator = Literal[
    "mm", "every_second_mm", "qkv", "proj", "grouped_mm", "attention", "reduce_scatter", "all_to_all"
]  # fmt: skip


class RecomputeSpec(BaseModel):
    """Recomputation of a part: whole layers, ``modules`` of each layer, or all but operators to ``keep``."""

    model_config = ConfigDict(extra="forbid", frozen=True, revalidate_instances="always", defer_build=True)

    kind: Literal["full", "modules", "operators"] = Field(
        description="whole layers, parts of each layer, or all but some operators"
    )
    layers: Layers | None = Field(
        default=None,
        description="full: layers of each stage; by method block of each virtual stage, by uniform in one go",
    )
    method: Literal["uniform", "block"] | None = Field(
        default=None,
        description="full: uniform keeps the input of every so many layers; block recomputes the first ones",
    )
    every: Layers | None = Field(
        default=None, description="full: each layer of that number (2: every second)"
    )
    modules: tuple[RecomputeModule, ...] = Field(
        default=(), description="modules: which parts of each layer run again"
    )
    keep: tuple[RecomputeOperator, ...] = Field(
        default=(), description="operators: whose outputs stay; all else of a layer runs again"
    )

    @model_validator(mode="after")
    def _says_what(self) -> RecomputeSpec:
        full = self.layers, self.method, self.every
        if self.kind == "full" and (
            (self.layers is None) == (self.every is None) or self.modules or self.keep
        ):
            raise ValueError(
                "kind full takes layers per stage, or every, as in 2; for all of them write recompute: full"
            )
        if self.kind == "full" and self.method and self.layers is None:
            raise ValueError(f"method {self.method} takes layers, as in layers: 2")
        if self.kind == "modules" and (full != (None,) * 3 or not self.modules or self.keep):
            raise ValueError("kind modules takes modules, a list such as [layernorm, mlp]")
        if self.kind == "operators" and (full != (None,) * 3 or not self.keep or self.modules):
            raise ValueError("kind operators takes keep, a list such as [every_second_mm, attention]")
        if {"mm", "every_second_mm"} <= set(self.keep):
            raise ValueError("keep has both mm and every_second_mm: give one of them")
        return self
