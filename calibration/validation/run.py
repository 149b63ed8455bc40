"""Running measured cases: every case of every file, once, over the cores of this machine.

Knows files, processes and the order of rows; what a case becomes is in predict.py, what the rows
say together in summary.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ...hardware.files import Refusal, read_each
from ...sim.engine.collection import collection_paused
from ..cases.case import Case, read_cases
from ..cases.constants import Constants
from ..cases.halves import Halves, are_shipped, left_out
from ..cases.preset import reported_rank
from ..cases.to_scenario import scenario_document, to_scenario
from .predict import Prediction, predict

CHUNKS_PER_JOB = 60
"""Parts of the work for each process, of about equal cost: small, so that none waits for the last ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidatedCase:
    """A case beside its prediction. ``source`` is the stem of its file."""

    source: str
    regime: str
    case: Case
    prediction: Prediction

    @property
    def error(self) -> float | None:
        """Predicted over measured step time, minus 1; None where one of them is missing."""
        return _error(self.prediction.step_time_s, self.case.measured.step_time_s)

    @property
    def memory_error(self) -> float | None:
        """Predicted over measured memory, minus 1; None where one of them is missing."""
        return _error(self.prediction.memory_bytes, self.case.measured.memory_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All rows, in the order of the files and of the cases in them, and the files that could not be used.

    ``held_out`` are step times by id, predicted with the constants of ``halves`` that never saw the case's
    family, ``source_left_out`` with those that never saw its source; ``gpu_left_out`` are predictions by id
    as if nobody had measured the GPU. All are empty without ``halves``.
    """

    rows: tuple[ValidatedCase, ...]
    held_out: Mapping[str, float] = field(default_factory=dict)
    source_left_out: Mapping[str, float] = field(default_factory=dict)
    gpu_left_out: Mapping[str, Prediction] = field(default_factory=dict)
    halves: Halves | None = None
    refused: tuple[Refusal, ...] = ()


LeftOut = Literal["family", "source", "gpu"]

JUDGED: dict[LeftOut, tuple[str, ...]] = {
    "family": ("high",),
    "source": ("high", "medium"),
    "gpu": ("high", "medium"),
}
"""Trust of the rows that are predicted without their own."""

_Unseen = tuple[int, LeftOut]


@dataclass(frozen=True, slots=True)
class _Task:
    case: Case
    constants: Constants | None = None
    without_own_gpu: bool = False
    as_stated: bool = False


def validate(
    paths: Sequence[str | Path],
    *,
    jobs: int = 1,
    halves: Halves | None = None,
    progress: Callable[[int, int], None] | None = None,
    wanted: Callable[[Case], bool] = lambda _: True,
) -> Report:
    """Predict every case of the files ``paths``, in ``jobs`` processes.

    With ``halves``, the step times of high trust once more, with constants that never saw their family, and
    those of high and medium trust with constants that never saw their source.
    Only cases that are ``wanted``. ``progress(done, total)`` is called after each case. A case that cannot be
    predicted is a row with the reason, and a file that is not one of cases stands in ``refused``.

    Raises:
        ValueError: not one of the files is a file of cases; the message names file, case and field.
    """
    files, refused = read_each(paths, lambda path: (path.stem, read_cases(path)))
    sources = [(stem, case) for stem, cases in files for case in cases if wanted(case)]
    members = _alike([case for _, case in sources])
    tasks = [_Task(sources[numbers[0]][1]) for numbers in members]
    again = _with_left_out(sources, halves)
    found: dict[int, Prediction] = {}
    unseen: dict[_Unseen, Prediction] = {}
    for place, prediction in _predictions([*tasks, *again.values()], jobs):
        if place >= len(tasks):
            unseen[list(again)[place - len(tasks)]] = prediction
            continue
        found |= dict.fromkeys(members[place], prediction)
        if progress:
            progress(len(found), len(sources))
    rows = (
        ValidatedCase(source=source, regime=case.regime, case=case, prediction=found[number])
        for number, (source, case) in enumerate(sources)
    )
    return Report(
        rows=tuple(rows),
        held_out=_unseen_steps(sources, "family", found, unseen) if halves else {},
        source_left_out=_unseen_steps(sources, "source", found, unseen) if halves else {},
        gpu_left_out={sources[number][1].id: one for (number, what), one in unseen.items() if what == "gpu"},
        halves=halves,
        refused=refused,
    )


def _alike(cases: Sequence[Case]) -> list[list[int]]:
    """Numbers of the cases by what decides a prediction: all of one list have the same, and share it."""
    found: dict[str, list[int]] = {}
    for number, case in enumerate(cases):
        found.setdefault(configuration(case), []).append(number)
    return list(found.values())


def predictions_of(cases: Sequence[Case], *, jobs: int) -> list[Prediction]:
    """The prediction of each of the ``cases``, in their order."""
    found = dict(_predictions([_Task(case) for case in cases], jobs))
    return [found[place] for place in range(len(cases))]


def configuration(case: Case) -> str:
    """What a prediction depends on, as text: cases of several releases often are of one configuration."""
    try:
        scenario = scenario_document(case)
        rank = reported_rank(case.software)
    except ValueError:
        return case.id  # refused, each with its own reason
    return repr((scenario, case.measured.memory_kind, case.measured.memory_bytes is None, rank))


def _with_left_out(sources: Sequence[tuple[str, Case]], halves: Halves | None) -> dict[_Unseen, _Task]:
    """Judged cases whose prediction changes when a family, a source or a GPU is left out of the fit, by
    number of the case and by what is left out."""
    if halves is None:
        return {}
    tasks: dict[_Unseen, _Task] = {}
    for number, (source, case) in enumerate(sources):
        if _is_judged(case, "family"):
            tasks[number, "family"] = _Task(case, left_out(halves, case.family))
        if _is_judged(case, "source"):
            tasks[number, "source"] = _Task(case, halves.sources.get(source), as_stated=True)
        if _is_judged(case, "gpu"):
            tasks[number, "gpu"] = _Task(case, without_own_gpu=True)
    return {which: task for which, task in tasks.items() if not _as_shipped(task)}


def _unseen_steps(
    sources: Sequence[tuple[str, Case]],
    what: LeftOut,
    found: Mapping[int, Prediction],
    unseen: Mapping[_Unseen, Prediction],
) -> dict[str, float]:
    """Step times of judged cases by id, by constants that never saw their family or source."""
    return {
        case.id: step_s
        for number, (_, case) in enumerate(sources)
        if _is_judged(case, what)
        and (step_s := unseen.get((number, what), found[number]).step_time_s) is not None
    }


def _as_shipped(task: _Task) -> bool:
    if task.without_own_gpu:
        return False
    try:
        if task.as_stated and scenario_document(task.case, as_stated=True) != scenario_document(task.case):
            return False
        scenario = to_scenario(task.case)
    except Exception:  # refused, or broken, with any constants: its own prediction says so
        return True
    return task.constants is None or are_shipped(scenario, task.constants)


def _is_judged(case: Case, what: LeftOut) -> bool:
    return case.trust in JUDGED[what] and case.measured.step_time_s is not None


def _predictions(tasks: Sequence[_Task], jobs: int) -> Iterator[tuple[int, Prediction]]:
    """(place in ``tasks``, prediction), in any order."""
    if jobs == 1:
        yield from enumerate(map(_predict, tasks))
        return
    from joblib import Parallel, delayed

    chunks = _chunks(list(map(_cost, tasks)), jobs)
    work = (delayed(_predict_all)(chunk, [tasks[place] for place in chunk]) for chunk in chunks)
    for found in Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)(work):
        yield from found


def _chunks(costs: Sequence[float], jobs: int) -> list[list[int]]:
    """Neighbours together, since they share much of what is remembered; the costliest first."""
    limit = sum(costs) / (jobs * CHUNKS_PER_JOB)
    chunks: list[list[int]] = [[]]
    cost = 0.0
    for place, own in enumerate(costs):
        if chunks[-1] and cost + own > limit:
            chunks.append([])
            cost = 0.0
        chunks[-1].append(place)
        cost += own
    return sorted(chunks, key=lambda chunk: -sum(costs[place] for place in chunk))


def _cost(task: _Task) -> float:
    """About how long a prediction takes, in no unit: its actions."""
    layout = task.case.layout
    actions = layout.global_batch / (layout.dp * layout.micro_batch) * layout.pp * layout.vpp
    return 30.0 + min(actions, 2_000.0)


def _predict(task: _Task) -> Prediction:
    return predict(task.case, task.constants, without_own_gpu=task.without_own_gpu, as_stated=task.as_stated)


def _predict_all(places: Sequence[int], tasks: Sequence[_Task]) -> list[tuple[int, Prediction]]:
    """One part of the work; what it leaves in cycles is collected once, at its end."""
    with collection_paused():
        return list(zip(places, map(_predict, tasks), strict=True))


def _error(predicted: float | None, measured: float | None) -> float | None:
    return None if predicted is None or measured is None else predicted / measured - 1
