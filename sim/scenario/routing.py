"""How tokens spread over experts, as a scenario says it: by a law, by counts of a run, by data of few tokens.

Knows fields; what they mean for ranks is lowering's (sim/lowering/layers/routing.py).
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ...hardware.fields import Text, number, whole


class RoutingSpec(BaseModel):
    """How tokens spread over experts: ``zipf`` by an ``exponent``, ``counts`` of a run from a ``file``, or
    ``repeated`` of data that has but a few different ``tokens``."""

    model_config = ConfigDict(extra="forbid", frozen=True, revalidate_instances="always", defer_build=True)

    kind: Literal["zipf", "counts", "repeated"] = Field(
        description="by a law, as a run counted them, or as few tokens have it that come again and again"
    )
    exponent: Annotated[float, number(ge=0, le=100)] | None = Field(
        default=None, description="zipf: 0 is balanced, 1 is as words are"
    )
    file: Text | None = Field(default=None, description="counts: JSON with the tokens of each expert")
    tokens: Annotated[int, *whole(1, 1000)] | None = Field(
        default=None,
        description="repeated: different tokens in the data, each as often, all of which go to the same topk"
        " experts; which, is drawn at random",
    )

    @model_validator(mode="after")
    def _says_how(self) -> RoutingSpec:
        given = {name for name in ("exponent", "file", "tokens") if getattr(self, name) is not None}
        if self.kind == "zipf" and given != {"exponent"}:
            raise ValueError("kind zipf takes an exponent, as in 0.5, and nothing else")
        if self.kind == "counts" and given != {"file"}:
            raise ValueError("kind counts takes a file with the tokens of each expert, and nothing else")
        if self.kind == "repeated" and given != {"tokens"}:
            raise ValueError("kind repeated takes the number of different tokens, and nothing else")
        return self
