"""Running measured cases: every case of every file, once, over the cores of this machine.

Knows files, processes and the order of rows; what a case becomes is in predict.py, what the rows
say together in summary.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from .case import Case, read_cases
from .predict import Prediction, predict
from .regime import regime_of

CHUNKS_PER_JOB = 16  # small enough that the last one does not leave the other cores idle for long
LARGEST_CHUNK = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
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
    """All rows, in the order of the files and of the cases in them."""

    rows: tuple[Row, ...]


def validate(
    paths: Sequence[str | Path], *, jobs: int = 1, progress: Callable[[int, int], None] | None = None
) -> Report:
    """Predict every case of the files ``paths``, in ``jobs`` processes.

    ``progress(done, total)`` is called after each case. A case that cannot be predicted is a row with
    the reason.

    Raises:
        ValueError: a file that is not a file of cases; the message names file, case and field.
        OSError: a file that cannot be read.
    """
    sources = [(Path(path).stem, case) for path in paths for case in read_cases(path)]
    alike: dict[str, list[int]] = {}
    for number, (_, case) in enumerate(sources):
        alike.setdefault(configuration(case), []).append(number)
    found: dict[int, Prediction] = {}
    predictions = _predictions([sources[numbers[0]][1] for numbers in alike.values()], jobs)
    for numbers, prediction in zip(alike.values(), predictions, strict=True):
        found |= dict.fromkeys(numbers, prediction)
        if progress:
            progress(len(found), len(sources))
    rows = (
        Row(source=source, regime=regime_of(case), case=case, prediction=found[number])
        for number, (source, case) in enumerate(sources)
    )
    return Report(rows=tuple(rows))


def configuration(case: Case) -> str:
    """What a prediction depends on, as text: cases of several releases often are of one configuration."""
    asked = case.measured.memory_kind, case.measured.memory_bytes is None
    told = asdict(case)
    blocks = [told[name] for name in ("hardware", "model", "layout", "software", "measured_network")]
    return repr((asked, blocks))


def _predictions(cases: Sequence[Case], jobs: int) -> Iterator[Prediction]:
    """Predictions in the order of ``cases``."""
    if jobs == 1:
        yield from map(predict, cases)
        return
    from joblib import Parallel, delayed

    size = max(1, min(LARGEST_CHUNK, len(cases) // (jobs * CHUNKS_PER_JOB)))
    chunks = [cases[start : start + size] for start in range(0, len(cases), size)]
    for predictions in Parallel(n_jobs=jobs, return_as="generator")(map(delayed(_predict_all), chunks)):
        yield from predictions


def _predict_all(cases: Sequence[Case]) -> list[Prediction]:
    return [predict(case) for case in cases]


def _error(predicted: float | None, measured: float | None) -> float | None:
    return None if predicted is None or measured is None else predicted / measured - 1
