"""Optimizers by name, read from optimizers.yaml, and what a scenario may say of the one that it uses.

An entry states what an optimizer keeps for a parameter and what its update moves. Does not know how state is
sharded nor what sharded matrices send (sim/lowering/optimizers.py).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from ...hardware.catalogue import Table
from ...hardware.fields import Flag, Text, whole

TensorMode = Literal["blockwise", "duplicated", "distributed"]
MatrixSharding = Literal["layer-wise", "gathered"]

NEWTON_SCHULZ_STEPS = 5
"""Iterations of Newton-Schulz by default, in torch (torch/optim/_muon.py), Megatron-LM (muon_num_ns_steps)
and Moonlight."""

WEIGHT_PASSES = 3
"""How often an update moves an element besides its states: gradient and weight are read, the weight is
written."""

_ROW = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)


class OptimizerState(BaseModel):
    """A tensor that an optimizer keeps for each parameter (see optimizers.yaml)."""

    model_config = _ROW

    name: str
    narrow: bool = False
    factored: bool = False
    momentum: bool = False


class Optimizer(BaseModel):
    """One entry of optimizers.yaml."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    name: str
    title: str
    source: str
    kernel: str
    states: tuple[OptimizerState, ...]
    flops: int
    eager_passes: float
    eager_launches: int
    launches: int | None = None
    on_host: bool = False
    momentum: bool | None = None
    orthogonalizes: bool = False
    copies: str = ""
    others: str = ""
    aliases: tuple[str, ...] = ()

    def kept(self, *, momentum: bool | None = None) -> tuple[OptimizerState, ...]:
        """The states that it keeps, with ``momentum`` or without; None: as is usual for this optimizer."""
        wanted = self.momentum if momentum is None else momentum
        return tuple(state for state in self.states if wanted or not state.momentum)

    def state_bytes(self, moment_bytes: int, *, momentum: bool | None = None, most_bytes: int = 4) -> int:
        """Bytes that stay for each parameter, factored states apart; ``moment_bytes`` of a narrow one, and
        no more than ``most_bytes`` of any."""
        whole_ones = (state for state in self.kept(momentum=momentum) if not state.factored)
        return sum(min(most_bytes, moment_bytes if state.narrow else 4) for state in whole_ones)

    @property
    def factors(self) -> bool:
        """Whether it keeps sums of rows and columns."""
        return any(state.factored for state in self.states)


OPTIMIZERS = Table("optimizer", __package__, "optimizers.yaml", Optimizer)


def optimizer_names() -> tuple[str, ...]:
    """Names of all optimizers, in the order of the file."""
    return OPTIMIZERS.names()


def get_optimizer(name: str) -> Optimizer:
    """The optimizer of that name, or of which it is another name. ValueError with the known ones."""
    other_names = {alias: one.name for one in OPTIMIZERS.records().values() for alias in one.aliases}
    return OPTIMIZERS.get(other_names.get(name, name))


def _called(value: Any) -> Any:
    """The name of the entry; what is not text is left to the type."""
    return get_optimizer(value).name if isinstance(value, str) else value


class OptimizerSpec(BaseModel):
    """Which optimizer updates the weights: a name of `stepsim list optimizers`, or a block that says more.

    ``momentum``: of sgd, usual with, and of adafactor, usual without. The others are Muon's: ``tp_mode`` says
    how a matrix that tensor parallelism cuts is orthogonalised (each part for itself, gathered on every rank,
    or by all-reduced products), ``sharding`` how ZeRO-1 shards its state (whole matrices to ranks as Megatron
    has it, or even shards whose momentum is gathered as Moonlight has it).
    """

    model_config = ConfigDict(extra="forbid", frozen=True, revalidate_instances="always", defer_build=True)

    name: Annotated[Text, BeforeValidator(_called, json_schema_input_type=str)] = Field(
        default="adamw", description="of `stepsim list optimizers`", examples=["muon"]
    )
    momentum: Flag | None = Field(default=None, description="of sgd and adafactor")
    ns_steps: Annotated[int, *whole(1, 99)] | None = Field(
        default=None, description="muon: iterations of Newton-Schulz; default: 5"
    )
    tp_mode: TensorMode | None = Field(default=None, description="muon: default: blockwise")
    sharding: MatrixSharding | None = Field(default=None, description="muon: default: layer-wise")

    @model_validator(mode="after")
    def _asks_what_it_has(self) -> OptimizerSpec:
        row = self.row
        if self.momentum is not None and row.momentum is None:
            takes = ", ".join(one.name for one in OPTIMIZERS.records().values() if one.momentum is not None)
            raise ValueError(f"momentum: {self.name} has no momentum to choose; it is for {takes}")
        for field in ("ns_steps", "tp_mode", "sharding"):
            if getattr(self, field) is not None and not row.orthogonalizes:
                takes = ", ".join(one.name for one in OPTIMIZERS.records().values() if one.orthogonalizes)
                raise ValueError(f"{self.name} orthogonalises no matrices; {field} is for {takes}")
        return self

    @property
    def row(self) -> Optimizer:
        """The optimizer's entry of optimizers.yaml."""
        return get_optimizer(self.name)

    @property
    def copies(self) -> str:
        """What its update makes of all parameters at once, or of those that it leaves to another."""
        return self.row.copies or (get_optimizer(self.row.others).copies if self.row.others else "")
