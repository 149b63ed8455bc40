"""What the simulator says of one case: a prediction, or the reason why there is none.

Knows how a result compares with what a run prints (which memory, of which rank); gives it the
configuration alone, never what was measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING

from ...sim.brief.step import Brief, brief_step
from ...sim.evidence.measured_memory import fit_probability, framework_name, room_of
from ...sim.result.step import IDLE
from ...sim.scenario.errors import ScenarioError
from ..cases.case import Case, MemoryKind, Outcome
from ..cases.gpu_left_out import profile_left_out
from ..cases.halves import with_constants
from ..cases.preset import ReportedRank, reported_rank
from ..cases.to_scenario import to_scenario

if TYPE_CHECKING:
    from ...sim.evidence.measured_steps import Doubt
    from ...sim.result.step import StageMemory
    from ...sim.scenario.models import Scenario
    from ..cases.constants import Constants

BEYOND: Mapping[MemoryKind | None, tuple[str, ...]] = {
    "allocated": ("allocator", "in flight", "flat buffers", IDLE, "communication", "context"),
    "reserved": ("communication", "context"),
    "nvidia_smi": (),
    None: (),
}
"""Terms of a stage's memory that a measurement of each kind does not see; without one all are seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """A step time and a memory with their outcome; or all None, and ``refused`` says why.

    ``interval_s`` is the 90 % interval of the step time, ``doubt`` what it was made of. ``internal`` marks a
    refusal that is the simulator's own mistake. ``room`` is of the fullest rank (measured_memory.room_of),
    and ``fit_probability`` what it comes to with that ``framework``.
    """

    step_time_s: float | None = None
    interval_s: tuple[float, float] | None = None
    memory_bytes: float | None = None
    outcome: Outcome | None = None
    refused: str | None = None
    internal: bool = False
    doubt: Doubt | None = None
    framework: str = ""
    room: tuple[float, float] | None = None
    fit_probability: float | None = None


def predict(
    case: Case,
    constants: Constants | None = None,
    *,
    without_own_gpu: bool = False,
    as_stated: bool = False,
) -> Prediction:
    """Simulate the configuration of ``case``, with ``constants`` in place of the shipped ones where given,
    or as if nobody had measured its GPU; ``as_stated`` as to_scenario says.

    Raises nothing: what goes wrong is a refused prediction.
    """
    try:
        scenario = to_scenario(case, as_stated=as_stated)
        if without_own_gpu:
            profile = profile_left_out(scenario.cluster.gpu_name)
            return _prediction(case, scenario, brief_step(scenario, profile))
        if constants is None:
            return _prediction(case, scenario, brief_step(scenario))
        return _prediction(case, scenario, brief_step(*with_constants(scenario, constants)))
    except ValueError as refusal:
        return Prediction(refused=_one_line(refusal))
    except Exception as mistake:  # one broken case must not take the others with it; it is counted apart
        return Prediction(refused=_internal(mistake), internal=True)


def memory_as_measured(stages: Sequence[StageMemory], kind: MemoryKind | None, rank: ReportedRank) -> float:
    """Bytes as a measurement of that kind shows them: of the first pipeline rank, of the last, or of the
    fullest."""
    unseen = BEYOND[kind]
    seen = {"first": stages[:1], "last": stages[-1:], "fullest": stages}[rank]
    return max(stage.peak_bytes - sum(stage.terms.get(term, 0.0) for term in unseen) for stage in seen)


def _prediction(case: Case, scenario: Scenario, step: Brief) -> Prediction:
    rank = "fullest" if case.measured.memory_bytes is None else reported_rank(case.software)
    return Prediction(
        step_time_s=step.step_time_s,
        interval_s=(step.interval.low_s, step.interval.high_s),
        memory_bytes=memory_as_measured(step.memory, case.measured.memory_kind, rank),
        outcome="ok" if step.fits else "oom",
        doubt=step.doubt,
        framework=framework_name(scenario.software.name),
        room=room_of(step.memory),
        fit_probability=fit_probability(scenario.software.name, step.memory),
    )


def _one_line(refusal: ValueError) -> str:
    """The message without the excerpts of a file that a scenario's errors show: no one wrote this file."""
    text = str(refusal)
    if isinstance(refusal, ScenarioError):
        text = "; ".join(
            f"{one.path}: {one.message}" if one.path else one.message for one in refusal.problems
        )
    return " ".join(text.split())


def _internal(mistake: Exception) -> str:
    frame = extract_tb(mistake.__traceback__)[-1]
    return f"internal error: {type(mistake).__name__}: {mistake} ({Path(frame.filename).name}:{frame.lineno})"
