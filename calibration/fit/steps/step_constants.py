"""Fits the constants that only step times show: per GPU type and software preset, never per run.

Knows which error the fit makes small and when a constant earns its place; simulates nothing itself
(``Times`` does), reads and writes no file.

The error is the mean over sources of the mean over families of the mean |log(predicted / measured)| in a
family: a sweep of hundreds of rows counts as one source, and a step that is predicted at half its length
counts as much as one at twice its length. |predicted / measured - 1| selects constants that predict steps
too short (Tofallis 2015, J. Oper. Res. Soc. 66, arXiv:2105.05249). Constants are fitted in turn, from the
unfitted ones, until none of them moves. The clock is always fitted; any other constant stays at its default
unless it takes ``WORTH`` off the error and ``FEWEST_FAMILIES`` families show it; and if its best value ends
its range, it stands in for something else that the simulator lacks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log1p
from statistics import fmean

from ...cases.constants import (
    CLOCKS,
    CLOCKS_CARRIED,
    CORUNS,
    FIXED_S,
    HOSTS_S,
    UNFITTED_PRESET,
    Constants,
    Wanted,
)
from .rows import TimedRow, Times
from .search import climb, coarse_to_fine

COARSE_CLOCKS, COARSE_HOSTS = 8, 16  # first strides through CLOCKS and HOSTS_S
CORUN_STRIDES = (3,)  # beside a clock that follows; finer than this no step time tells them apart
WORTH = 0.002  # of the error, for a constant other than the clock
SHOWS = 0.02  # a row shows a constant that makes its step this much longer
FEWEST_FAMILIES = 2
NEAR = (4, 2, 1)  # strides of a search from the shipped constants
ROUNDS = 5  # constants of a GPU and of its presets move each other little: two or three rounds settle them


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """Rows, what simulates them, which constants are fitted on them, and where the fit starts.

    ``near``: each constant climbs from where it starts, which is enough where its error has one valley; the
    co-run slowdown stays. A tenth of the simulations.
    """

    rows: Sequence[TimedRow]
    times: Times
    wanted: Wanted
    start: Constants
    near: bool = False

    def of_gpu(self, gpu: str) -> list[TimedRow]:
        """Rows that ran on ``gpu``."""
        return [row for row in self.rows if row.gpu == gpu]

    def of_preset(self, preset: str) -> list[TimedRow]:
        """Rows that ran ``preset``."""
        return [row for row in self.rows if row.preset == preset]

    def steps_s(self, constants: Constants, rows: Sequence[TimedRow]) -> list[float]:
        """Predicted step times of ``rows``."""
        alone = self.times([(row, constants.trial(row)) for row in rows])
        return [s + constants.presets[row.preset].step_fixed_s for row, s in zip(rows, alone, strict=True)]

    def errors(self, constants: Constants, rows: Sequence[TimedRow]) -> list[float]:
        """Predicted over measured step time, minus 1, of each of ``rows``."""
        return [
            step_s / row.measured_s - 1
            for row, step_s in zip(rows, self.steps_s(constants, rows), strict=True)
        ]

    def error(self, constants: Constants, rows: Sequence[TimedRow]) -> float:
        """The figure that the fit makes small."""
        return mean_error(rows, self.errors(constants, rows))


def mean_error(rows: Sequence[TimedRow], errors: Sequence[float]) -> float:
    """Mean over sources of the mean over families of the mean |log(predicted / measured)| of rows with these
    ``errors``, each predicted over measured minus 1; 0 without rows."""
    sources: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row, error in zip(rows, errors, strict=True):
        sources[row.source][row.family].append(abs(log1p(error)))
    return fmean([fmean(map(fmean, families.values())) for families in sources.values()] or [0.0])


def fittable(rows: Sequence[TimedRow]) -> Wanted:
    """GPUs and presets that rows of enough families ran on."""
    return Wanted(gpus=_enough(rows, lambda row: row.gpu), presets=_enough(rows, lambda row: row.preset))


def fit_constants(data: Data, say: Callable[[str], None] = lambda _: None) -> Constants:
    """The wanted constants that make the error of ``data`` least; those without rows stay as they start, and
    clocks that are carried from a wanted one follow it."""
    constants = data.start
    gpus = [name for name in data.wanted.gpus if data.of_gpu(name)]
    presets = [name for name in data.wanted.presets if data.of_preset(name)]
    for turn in range(ROUNDS):
        before = constants
        for gpu in gpus:
            say(f"round {turn + 1}: clock of {gpu}")
            constants = _with_clock(data, constants, gpu, (2, 1) if turn else _first(data))
        for preset in presets:
            say(f"round {turn + 1}: host of {preset}")
            host_s = best_host(data, constants, preset)
            constants = constants.with_preset(preset, host_s_per_kernel=host_s.adopted)
            fixed_s = best_fixed(data, constants, preset)
            constants = constants.with_preset(preset, step_fixed_s=fixed_s.adopted)
        for gpu in gpus:
            say(f"round {turn + 1}: co-run slowdown of {gpu}")
            constants = constants.with_gpu(gpu, corun_slowdown=best_corun(data, constants, gpu).adopted)
        if constants == before:
            break
    return _with_carried_clocks(constants, gpus)


def _with_carried_clocks(constants: Constants, fitted: Sequence[str]) -> Constants:
    """What is fitted for a GPU, for those of the same chip at the same power too."""
    for gpu, origin in CLOCKS_CARRIED.items():
        if origin in fitted and gpu in constants.gpus and gpu not in fitted:
            constants = constants.with_gpu(gpu, clock_fraction=constants.gpus[origin].clock_fraction)
    return constants


@dataclass(frozen=True, slots=True, kw_only=True)
class StepConstant:
    """The best value of a constant beside its default, and which of the two is adopted.

    ``gain`` is what the best value takes off the error; ``families`` are those that show it;
    ``ends_range`` whether no larger or smaller value was open to it.
    """

    best: float
    default: float
    ends_range: bool
    gain: float
    families: int

    @property
    def earned(self) -> bool:
        """Whether the best value is worth a fitted constant."""
        return self.gain > WORTH and self.families >= FEWEST_FAMILIES and not self.ends_range

    @property
    def adopted(self) -> float:
        """The best value where it is worth it, else the default."""
        return self.best if self.earned else self.default


def best_host(data: Data, constants: Constants, preset: str) -> StepConstant:
    """Host time per kernel of ``preset``, all else given."""
    rows = data.of_preset(preset)

    def of(host_s: float) -> Constants:
        return constants.with_preset(preset, host_s_per_kernel=host_s)

    def score(host_s: float) -> float:
        return data.error(of(host_s), rows)

    present, default = constants.presets[preset].host_s_per_kernel, UNFITTED_PRESET.host_s_per_kernel
    if data.near:
        best = climb(HOSTS_S, score, present, NEAR)
    else:
        best = coarse_to_fine(HOSTS_S, score, COARSE_HOSTS)
    return StepConstant(
        best=best,
        default=default,
        gain=score(default) - score(best),
        ends_range=best in (HOSTS_S[0], HOSTS_S[-1]),
        families=_showing(data, rows, of(HOSTS_S[0]), of(best)),
    )


def best_fixed(data: Data, constants: Constants, preset: str) -> StepConstant:
    """Fixed time per step of ``preset``, all else given. Costs no simulation."""
    rows = data.of_preset(preset)

    def of(fixed_s: float) -> Constants:
        return constants.with_preset(preset, step_fixed_s=fixed_s)

    def score(fixed_s: float) -> float:
        return data.error(of(fixed_s), rows)

    best, default = min(FIXED_S, key=score), UNFITTED_PRESET.step_fixed_s
    return StepConstant(
        best=best,
        default=default,
        gain=score(default) - score(best),
        ends_range=best == FIXED_S[-1],
        families=_showing(data, rows, of(default), of(best)),
    )


def best_corun(data: Data, constants: Constants, gpu: str) -> StepConstant:
    """Co-run slowdown of ``gpu``. The clock follows each value: one makes up for much of the other."""
    rows, present = data.of_gpu(gpu), constants.gpus[gpu].corun_slowdown
    if data.near:
        return StepConstant(best=present, default=present, gain=0.0, ends_range=False, families=0)

    def of(corun: float) -> Constants:
        return _with_clock(data, constants.with_gpu(gpu, corun_slowdown=corun), gpu, (2,))

    def score(corun: float) -> float:
        return data.error(of(corun), rows)

    default = CORUNS[0]
    best = climb(CORUNS, score, present, CORUN_STRIDES)
    return StepConstant(
        best=best,
        default=default,
        gain=score(default) - score(best),
        ends_range=best == CORUNS[-1],
        families=_showing(
            data,
            rows,
            constants.with_gpu(gpu, corun_slowdown=default),
            constants.with_gpu(gpu, corun_slowdown=best),
        ),
    )


def _first(data: Data) -> tuple[int, ...]:
    """Strides of the clock in the first round; none are a search of all clocks."""
    return NEAR if data.near else ()


def _with_clock(data: Data, constants: Constants, gpu: str, strides: Sequence[int]) -> Constants:
    """The constants with the best clock of ``gpu``: the best that ``strides`` reach from the present one, or,
    without strides, the best of all."""
    rows, present = data.of_gpu(gpu), constants.gpus[gpu].clock_fraction

    def score(clock: float) -> float:
        return data.error(constants.with_gpu(gpu, clock_fraction=clock), rows)

    best = climb(CLOCKS, score, present, strides) if strides else coarse_to_fine(CLOCKS, score, COARSE_CLOCKS)
    return constants.with_gpu(gpu, clock_fraction=best)


def _showing(data: Data, rows: Sequence[TimedRow], without: Constants, having: Constants) -> int:
    """Families with a row whose step is longer by ``SHOWS`` under ``having``."""
    pairs = zip(rows, data.steps_s(without, rows), data.steps_s(having, rows), strict=True)
    return len({row.family for row, short_s, long_s in pairs if long_s / short_s - 1 >= SHOWS})


def _enough(rows: Sequence[TimedRow], key: Callable[[TimedRow], str]) -> tuple[str, ...]:
    families: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        families[key(row)].add(row.family)
    return tuple(sorted(name for name, members in families.items() if len(members) >= FEWEST_FAMILIES))
