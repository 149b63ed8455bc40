"""A fit on step times as text for people: docs/step-fit.md, and the same on a terminal.

Deterministic: the same fit gives the same page.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ....sim.figures import percent, seconds, signed_percent
from ...cases.constants import CLOCKS, GpuConstants
from .report import ErrorCurve, FittedCoverage, GpuFit, PresetFit, Score, StepFit
from .rows import FEW
from .step_constants import FEWEST_FAMILIES, SHOWS, WORTH, StepConstant

Written = Callable[[float], str]
"""How a value of the constant is written."""

HEAD = f"""\
# Constants fitted on step times

Made by

    stepsim calibrate steps CASES.yaml... --markdown docs/step-fit.md

Do not edit. Kernel and collective curves are fitted on kernels and collectives. Only step times show what
is fitted here: per GPU type the sustained clock and the slowdown of compute beside communication, per
software preset the host's time per kernel and a fixed time per step. Nothing is fitted per run.

The fit makes small the mean over sources of the mean over families of the mean |log(predicted / measured)|
in a family, on the rows of high trust that can be expressed, and on those of medium trust of GPUs with
fewer than {FEW} families of high trust. A clock is always fitted; another constant only where it takes
more than {WORTH * 100:g} points off that error, at least {FEWEST_FAMILIES} families have a step that it makes
{percent(SHOWS, 0)} longer, and its best value does not end its range. Held out: the families are split in two
halves by a hash of their names, and each half is predicted with the constants that the other half gives.
"""


NEAR = """\
Searched from the shipped constants only (`--near`): each constant climbs to the bottom of the valley that it
starts in, on all families and on either half; co-run slowdowns stay.

"""


def fit_markdown(fit: StepFit) -> str:
    """The whole page."""
    sections = [HEAD, _summary(fit), _halves(fit), _sources(fit), _constants(fit)]
    sections += [_gpu(gpu, fit.constants.gpus[gpu.name]) for gpu in fit.gpus]
    sections += map(_preset, fit.presets)
    return "\n".join(sections)


def fit_text(fit: StepFit) -> str:
    """The page without its head."""
    return fit_markdown(fit).removeprefix(HEAD).lstrip()


def _summary(fit: StepFit) -> str:
    scores = {} if fit.near else {"no constant fitted": fit.unfitted}
    scores |= {
        "constants as shipped": fit.shipped,
        "fitted, in sample": fit.fitted,
        "fitted, held out": fit.held_out,
    }
    rows = [(label, *_figures(score)) for label, score in scores.items()]
    errors = fit.fitted.errors
    counts = f"Constants fitted: {fit.fitted_constants}; cases: {errors.cases} in {errors.families} families"
    if fit.refused:
        counts += f"; of high trust but not to be expressed yet: {fit.refused}"
    if fit.left_out:
        counts += f"; without a part in any fitted constant: {fit.left_out}"
    columns = ("constants", "error", "family median", "family p90", "signed")
    words = NEAR if fit.near else ""
    return f"## The fit\n\n{words}{counts}.\n\n{_table(columns, rows)}"


def _halves(fit: StepFit) -> str:
    """Each half by itself: the error of the families that it was fitted on, and of those left out."""
    rows = []
    for number, half in enumerate(fit.halves, start=1):
        for label, score in (("fitted on", half.inside), ("left out", half.outside)):
            if score is not None:
                counts = str(score.errors.cases), str(score.errors.families)
                rows.append((f"half {number}, families {label}", *counts, *_figures(score)))
    columns = ("families", "cases", "number", "error", "family median", "family p90", "signed")
    return f"## Both halves\n\n{_table(columns, rows)}"


def _constants(fit: StepFit) -> str:
    """One line for each constant: value, where it may lie, what it is worth, and whether a bound binds."""
    rows: list[tuple[str, ...]] = []
    for gpu in fit.gpus:
        clock = fit.constants.gpus[gpu.name].clock_fraction
        ends = "**yes**" if clock in (CLOCKS[0], CLOCKS[-1]) else "no"
        halves = " / ".join(map(_plain, gpu.halves))
        rows.append(
            (f"{gpu.name} clock", _plain(clock), _between(gpu.clock, _plain), halves, "-", ends, "fitted")
        )
        rows.append((f"{gpu.name} co-run", *_line(gpu.corun, _plain)))
    for preset in fit.presets:
        halves = " / ".join(map(seconds, preset.halves))
        value, _, _, *rest = _line(preset.host, seconds)
        rows.append((f"{preset.name} host", value, _between(preset.host_curve, seconds), halves, *rest))
        rows.append((f"{preset.name} step", *_line(preset.fixed, seconds)))
    columns = ("constant", "value", "interval", "halves", "gain", "bound binds", "verdict")
    legend = (
        f"Interval: where the error stays within {WORTH * 100:g} points of the least. Halves: what each half "
        "of the families gives. Gain: points that the best value takes off the error. Bound binds: the best "
        "value is the least or the largest that was open to it; it is not adopted then, but for a clock, "
        "which has no default.\n"
    )
    return f"## Every constant\n\n{_table(columns, rows)}\n{legend}"


def _line(choice: StepConstant, written: Written) -> tuple[str, ...]:
    ends = "**yes**" if choice.ends_range and choice.best != choice.default else "no"
    verdict = "fitted" if choice.earned else "stays"
    return written(choice.adopted), "-", "-", f"{choice.gain * 100:.2f}", ends, verdict


def _between(curve: ErrorCurve, written: Written) -> str:
    low, high = map(written, curve.flat)
    return f"{low} to {high}"


def _figures(score: Score) -> tuple[str, ...]:
    errors = score.errors
    return (
        percent(score.error, 2),
        percent(errors.median),
        percent(errors.p90),
        signed_percent(errors.signed_median),
    )


def _sources(fit: StepFit) -> str:
    rows = [
        (name, str(cases), str(families), percent(before, 2), percent(inside, 2), percent(outside, 2))
        for (name, cases, families, inside), (*_, before), (*_, outside) in zip(
            fit.fitted.sources, fit.unfitted.sources, fit.held_out.sources, strict=True
        )
    ]
    before = "shipped" if fit.near else "no constant fitted"
    columns = ("source", "cases", "families", before, "in sample", "held out")
    return f"## Error by source\n\n{_table(columns, rows)}"


def _gpu(gpu: GpuFit, constants: GpuConstants) -> str:
    clock, halves = _plain(constants.clock_fraction), " and ".join(map(_plain, gpu.halves))
    return (
        f"## {gpu.name}\n\n{_coverage(gpu.coverage)}\n\n"
        f"- `clock_fraction` {clock}. {_flat(gpu.clock, _plain)} The halves give {halves}.\n"
        f"- `corun_slowdown` {_choice(gpu.corun, _plain)}\n\n"
        f"{_points('clock_fraction', gpu.clock, _plain)}"
    )


def _preset(preset: PresetFit) -> str:
    halves = " and ".join(map(seconds, preset.halves))
    return (
        f"## {preset.name}\n\n{_coverage(preset.coverage)}\n\n"
        f"- `host_s_per_kernel` {_choice(preset.host, seconds)} {_flat(preset.host_curve, seconds)}"
        f" The halves give {halves}.\n"
        f"- `step_fixed_s` {_choice(preset.fixed, seconds)}\n\n"
        f"{_points('host_s_per_kernel', preset.host_curve, seconds)}"
    )


def _coverage(covered: FittedCoverage) -> str:
    return f"{covered.basis}: error {percent(covered.error, 2)}, held out {percent(covered.held_out, 2)}."


def _choice(choice: StepConstant, written: Written) -> str:
    if choice.best == choice.default:
        return f"stays {written(choice.default)}: no value tried is better."
    merit = f"takes {choice.gain * 100:.2f} points off, {choice.families} families show it"
    if choice.earned:
        return f"{written(choice.best)}: {merit}."
    if choice.ends_range:
        merit += ", and it ends the range"
    return f"stays {written(choice.default)}: {written(choice.best)} {merit}."


def _flat(curve: ErrorCurve, written: Written) -> str:
    low, high = map(written, curve.flat)
    return f"Within {WORTH * 100:g} points of the least error from {low} to {high}."


def _points(name: str, curve: ErrorCurve, written: Written) -> str:
    rows = [(written(value), percent(error, 2)) for value, error in curve.points]
    return _table((name, "error"), rows)


def _plain(value: float) -> str:
    """A fraction, as profiles state it.

    >>> _plain(0.9), _plain(0.9251)
    ('0.90', '0.93')
    """
    return f"{value:.2f}"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns of even width: the first is text, the others are figures and stand to the right."""
    widths = [max(map(len, cells)) for cells in zip(columns, *rows, strict=True)]
    rule = [("-" * width if i == 0 else "-" * (width - 1) + ":") for i, width in enumerate(widths)]
    lines = []
    for line in (columns, rule, *rows):
        label, *figures = (cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        lines.append(f"| {' | '.join([label.strip().ljust(widths[0]), *figures])} |\n")
    return "".join(lines)
