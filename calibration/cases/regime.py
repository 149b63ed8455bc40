"""The regime of a case: what kind of run it is, by configuration alone, never by outcome."""

from __future__ import annotations

from ...sim.result.step import AXES
from .case import Case


def regime_of(case: Case) -> str:
    """GPU, dense or MoE, and the kinds of parallelism in use: ``A100-SXM4-80GB dense tp+pp+dp``."""
    kinds = [axis for axis in AXES if getattr(case.layout, axis) > 1]
    return f"{case.hardware.gpu} {'moe' if case.model.moe else 'dense'} {'+'.join(kinds) or 'one GPU'}"
