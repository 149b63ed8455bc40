"""``stepsim calibrate steps --own``: a profile from what a few steps of a user's own took."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .output import clear_status, console, echo_json, output_file, save_text, say, status_line, wrote

if TYPE_CHECKING:
    from ..calibration.fit.own.steps import FittedSteps, MeasuredRun
    from ..calibration.validation.grids import Grid


def own_steps(files: Sequence[Path], out: Path, as_json: bool) -> None:
    """Fit the factors that the runs in ``files`` show, write the profile, and say how sure it is."""
    output_file("--out", out, (".yaml", ".yml"), files)

    from ..calibration.fit.own.steps import fit_own_steps
    from ..calibration.fit.profile_file import steps_profile_text
    from ..hardware.calibrated.read import read_profile_file
    from .calibrate_fit import made_here

    runs = [_measured(path) for path in files]
    if show := status_line():
        show(f"simulating {len(runs)} runs")
    fit = fit_own_steps(runs)
    clear_status()
    save_text(out, steps_profile_text(fit.gpu, made_here(), fit.factors))
    read_profile_file(out)  # what is written can be read
    if as_json:
        echo_json(_document(fit))
    else:
        from ..calibration.validation.tables import print_grid

        print_grid(_runs_grid(fit), console())
        print_grid(_factors_grid(fit), console())
    wrote("profile", out)
    for name in fit.doubtful:
        say(
            f"{name}: further from its prediction than clusters differ from one another; see that the "
            "scenario is what ran (batch, recomputation, GPUs), and that the first steps were not timed",
            err=True,
        )


def _measured(path: Path) -> MeasuredRun:
    from ..calibration.cases.own_run import read_run
    from ..calibration.fit.own.steps import MeasuredRun

    own, scenario = read_run(path)
    if own.measured.step_time_s is None:
        raise ValueError(f"{path}: measured.step_time_s is missing: factors are of step times")
    return MeasuredRun(name=str(path), scenario=scenario, step_time_s=own.measured.step_time_s)


def _document(fit: FittedSteps) -> dict[str, Any]:
    return {
        "gpu": fit.gpu,
        "factors": [
            {"cause": one.cause, "factor": one.factor, "sigma_before": one.before, "sigma": one.after}
            for one in fit.moved
        ],
        "fixed_s": fit.factors.fixed_s,
        "runs": [
            {
                "run": own.name,
                "measured_s": own.measured_s,
                "step_time_s": before.step_time_s,
                "interval_s": [before.interval.low_s, before.interval.high_s],
                "calibrated_step_time_s": after.step_time_s,
                "calibrated_interval_s": [after.interval.low_s, after.interval.high_s],
            }
            for own, before, after in zip(fit.factors.runs, fit.before, fit.after, strict=True)
        ],
        "doubtful": list(fit.doubtful),
    }


def _runs_grid(fit: FittedSteps) -> Grid:
    from ..calibration.validation.grids import Grid
    from ..sim.figures import percent, seconds, signed_percent

    rows = tuple(
        (
            own.name,
            seconds(own.measured_s),
            seconds(before.step_time_s),
            signed_percent(before.step_time_s / own.measured_s - 1),
            percent((before.interval.high_s - before.interval.low_s) / before.step_time_s),
            seconds(after.step_time_s),
            signed_percent(after.step_time_s / own.measured_s - 1),
            percent((after.interval.high_s - after.interval.low_s) / after.step_time_s),
        )
        for own, before, after in zip(fit.factors.runs, fit.before, fit.after, strict=True)
    )
    columns = ("run", "measured", "as shipped", "error", "width", "calibrated", "error", "width")
    return Grid(title=f"Own steps on {fit.gpu}", columns=columns, rows=rows)


def _factors_grid(fit: FittedSteps) -> Grid:
    from ..calibration.validation.grids import Grid
    from ..sim.figures import percent, seconds

    words = {
        "matrix": "GEMM and attention",
        "memory": "kernels bound by memory",
        "host": "host's launches",
        "checks": "host's checks of collectives",
        "node": "communication in a domain",
        "network": "communication between domains",
    }
    rows = [
        (words[one.cause], f"{one.factor:.3f}", percent(one.before), percent(one.after)) for one in fit.moved
    ]
    rows.append(("fixed time of a step", f"+ {seconds(fit.factors.fixed_s)}", "", ""))
    columns = ("durations over the shipped ones", "factor", "unsure by", "now")
    return Grid(title="Factors", columns=columns, rows=tuple(rows))
