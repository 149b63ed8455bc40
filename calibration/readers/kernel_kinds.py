"""What a kernel does, by its name: GEMM, attention, communication, copy, optimizer; the rest is pointwise.

Knows the patterns of ``kernel_kinds.yaml``. Does not know shapes or times.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from importlib.resources import files
from typing import Literal, get_args

from ...hardware.files import load_yaml

Kind = Literal["compute", "GEMM", "attention", "pointwise", "optimizer", "other", "copy", "communication"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""Kinds of kernels. ``pointwise`` are all that no pattern knows: elementwise, norms, reductions, generated
code; ``compute`` is what a trace does not tell apart, ``other`` what is none of these."""

_FILE = "kernel_kinds.yaml"


@cache
def _patterns() -> tuple[tuple[Kind, re.Pattern[str]], ...]:
    text = files(__package__).joinpath(_FILE).read_text(encoding="utf-8")
    document = load_yaml(text, _FILE)
    return tuple((kind, re.compile("|".join(rules), re.IGNORECASE)) for kind, rules in document.items())


@lru_cache(maxsize=65536)
def kind_of_kernel(name: str) -> Kind:
    """The kind of a kernel, or of an operator that ran on a CPU.

    >>> kind_of_kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL"), kind_of_kernel("nvjet_tst_128x256_64x4")
    ('communication', 'GEMM')
    """
    return next((kind for kind, pattern in _patterns() if pattern.search(name)), "pointwise")
