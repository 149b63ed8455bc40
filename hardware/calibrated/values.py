"""What one value of a profile file may be: times, rates, shares and intervals, each with its bounds.

Knows their units and that text may stand for a number. Which field takes which value is in ``models``.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, get_args

from pydantic import BeforeValidator, Field

from ..collective_kinds import known_kind
from ..fields import number, quantity, whole
from ..quantities import Dimension, parse_quantity


def _number_of(value: Any) -> Any:
    """YAML 1.1 calls 2e-2 text, and some readers every key; what is not a number stays as it is."""
    if not isinstance(value, str):
        return value
    try:
        return float(value)
    except ValueError:
        return value


def kind_of(value: Any) -> Any:
    """The collective that a name means; any other value as it is."""
    return (isinstance(value, str) and known_kind(value)) or value


PLAIN = BeforeValidator(_number_of)

Seconds = Annotated[float, *quantity("seconds", 0.0, 60.0, text_only=True), Field(examples=["12.3 us"])]
Rate = Annotated[float, *quantity("bytes_per_s", 1e3, 1e18, text_only=True), Field(examples=["380 GB/s"])]
Bytes = Annotated[float, *quantity("bytes", 1.0, 1e18, text_only=True), Field(examples=["8 B", "1 GB"])]
Share = Annotated[float, PLAIN, number(gt=0, le=1)]
Part = Annotated[float, PLAIN, number(ge=0, le=1)]
Residual = Annotated[float, PLAIN, number(ge=0, le=1e12)]
Blend = Annotated[float, PLAIN, number(ge=1, le=1000)]
"""An exponent of two times that are joined smoothly: from their sum to all but the larger one."""
Tail = Annotated[float, PLAIN, number(ge=0, le=1e6)]
Correction = Annotated[float, PLAIN, number(ge=1e-3, le=1000)]
Factor = Annotated[float, PLAIN, number(ge=0.1, le=10)]
Size = Annotated[float, PLAIN, number(gt=0, le=1e12)]
StepTime = Annotated[float, *quantity("seconds", 1e-6, 1e6, text_only=True), Field(examples=["4.31 s"])]
Count = Annotated[int, *whole(1), PLAIN]
End = Annotated[str, Field(strict=True)] | Annotated[float, number()]
"""One end of an interval: a number, or text with a unit."""


def _ends(value: Any) -> Any:
    """Two ends that are finite numbers, or quantities of one kind."""
    for end in value if isinstance(value, list | tuple) else ():
        plain = _number_of(end)
        if isinstance(plain, bool) or not isinstance(plain, int | float | str):
            raise ValueError(f"{end!r} is not a number")
        if not isinstance(plain, str) and not math.isfinite(plain):
            raise ValueError(f"{end!r} is not finite")
        if isinstance(plain, str):
            _quantity_of_some_kind(plain)
    return value


def _quantity_of_some_kind(text: str) -> None:
    """ValueError for text that is a quantity of no kind that a profile states."""
    for dimension in get_args(Dimension):
        try:
            parse_quantity(text, dimension)
        except ValueError:
            continue
        return
    raise ValueError(f"{text!r} is neither a number nor a quantity, such as 1.2 us")


Ends = Annotated[tuple[End, End], BeforeValidator(_ends)]
Intervals = dict[str, Ends]
"""By name of a constant of the same block, the range that holds nine in ten of its bootstrap replicas."""
