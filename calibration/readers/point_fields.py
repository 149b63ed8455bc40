"""The fields of a file of measured kernels (``kind: kernels``): what may stand there, its type and range.

Knows every field; does not know which kernel a point becomes. A point may carry the fields of other
operations as null.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from ...hardware.catalogue import unknown_name
from ...hardware.explain import dotted, explained, field_path
from .foreign.values import LARGEST_SECONDS, LARGEST_SIZE

LARGEST_HEAD = 4096
"""Largest dimension of an attention head. Fused kernels take 256 at most; unfused ones ran with more."""
_FASTEST_TFLOPS = 1e9  # ten thousand times a GPU of 2026

Size = Annotated[int, Field(ge=1, le=LARGEST_SIZE)]
HeadSize = Annotated[int, Field(ge=1, le=LARGEST_HEAD)]
Name = Annotated[str, Field(min_length=1)]


class _Block(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class _Point(_Block):
    """What every point has. ``assumed`` and ``notes`` are for people; ``time_us`` repeats ``tflops``.

    ``at_boost`` says that the power limit did not act, on a GPU whose sweep it slowed.
    """

    id: Name
    source: Name
    gpu: Name
    dtype: Literal["fp32", "tf32", "bf16", "fp16", "fp8", "fp4", "nvfp4"]
    impl: Name
    tflops: Annotated[float, Field(gt=0, le=_FASTEST_TFLOPS)]
    flops_counted: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    time_us: Annotated[float, Field(gt=0, le=LARGEST_SECONDS * 1e6)] | None = None
    upper_bound: bool = False
    at_boost: bool = False
    assumed: list[str] | None = None
    notes: str | None = None


class _Product(_Block):
    m: Size
    n: Size
    k: Size
    batch: None = None
    seq_length: None = None
    num_heads: None = None
    num_kv_heads: None = None
    qk_head_dim: None = None
    v_head_dim: None = None
    causal: None = None


class ProductShape(_Product):
    """``m`` x ``k`` by ``k`` x ``n``, ``groups`` times where there are several."""

    groups: Size | None = None


class GroupedShape(_Product):
    """A grouped GEMM; ``m`` counts the rows of one of its ``groups``."""

    groups: Size


class AttentionShape(_Block):
    """Self-attention: queries and keys of one length."""

    batch: Size
    seq_length: Size
    num_heads: Size
    num_kv_heads: Size
    qk_head_dim: HeadSize
    v_head_dim: HeadSize
    causal: bool
    m: None = None
    n: None = None
    k: None = None
    groups: None = None

    @model_validator(mode="after")
    def _heads_share(self) -> Self:
        if self.num_heads % self.num_kv_heads:
            raise ValueError(f"num_kv_heads: {self.num_kv_heads} must divide num_heads, {self.num_heads}")
        return self


class _ProductPoint(_Point):
    pass_: Annotated[Literal["fwd", "dgrad", "wgrad"], Field(alias="pass")]
    accumulate: bool | None = None
    out_dtype: Literal["bf16", "fp16", "fp32"] | None = None


class GemmPoint(_ProductPoint):
    """A GEMM."""

    op: Literal["gemm"]
    shape: ProductShape


class GroupedGemmPoint(_ProductPoint):
    """The GEMMs of several experts."""

    op: Literal["grouped_gemm"]
    shape: GroupedShape


class AttentionPoint(_Point):
    """Attention, fused or not."""

    op: Literal["attention"]
    pass_: Annotated[Literal["fwd", "bwd", "fwd_bwd"], Field(alias="pass")]
    shape: AttentionShape
    accumulate: None = None
    out_dtype: None = None


Point = GemmPoint | GroupedGemmPoint | AttentionPoint
_POINTS = {"gemm": GemmPoint, "grouped_gemm": GroupedGemmPoint, "attention": AttentionPoint}
_POINT: TypeAdapter[Point] = TypeAdapter(Annotated[Point, Field(discriminator="op")])


def read_point(document: Any) -> Point:
    """The point in ``document``. ValueError naming the first field that is wrong and its value."""
    try:
        return _POINT.validate_python(document)
    except ValidationError as failure:
        error = failure.errors(include_url=False)[0]
    if error["type"] == "union_tag_not_found":
        raise ValueError(f"op: this field is required; known: {', '.join(_POINTS)}")
    if error["type"] == "union_tag_invalid":
        raise ValueError(f"op: {unknown_name('operation', str(error['input'].get('op')), _POINTS)}")
    operation, *place = error["loc"] or ("",)
    error["loc"] = tuple(place)
    said = explained(error, _POINTS.get(str(operation), GemmPoint))
    raise ValueError(": ".join(filter(None, [dotted(field_path(error)), said])))
