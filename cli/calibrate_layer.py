"""``stepsim calibrate layer``: one transformer layer of a scenario, measured against predicted.

Hands the simulator's kernels to calibration as a plain list; neither knows the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from .calibrate_kernels import DeviceOption
from .options import JsonOption, ScenarioArgument
from .output import clear_status, console, echo_json, say, status_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..calibration.measure.device import Device
    from ..calibration.measure.layer import LayerOp, MeasuredOp


def layer(
    scenario: ScenarioArgument,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FIELD=VALUE", help="Change one field, as in training.micro_batch=2."),
    ] = None,
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure one layer of a scenario, at its TP shard and microbatch, kernel by kernel, on this GPU.

    The prediction is for the scenario's GPU, the measurement of the device here. Collectives are left out.
    Needs the extra `calibration`.
    """
    from statistics import median

    from ..calibration.measure.device import find_device
    from ..calibration.measure.layer import measure_layer
    from ..sim.scenario.load import load_scenario

    here = find_device(device)
    loaded = load_scenario(scenario, overrides or ())
    gpu = loaded.cluster.gpu_name
    ops = _ops(loaded)
    measured = measure_layer(ops, here, status_line() or (lambda text: say(text, err=True)))
    clear_status()
    if as_json:
        echo_json(_document(measured, here, gpu))
        return
    _print(measured)
    clocks = [one.sm_clock_hz for one in measured if one.sm_clock_hz]
    at = f" at {median(clocks) * 1e-9:.2f} GHz (median)" if clocks else ""
    say(f"measured on {here.name}{at}, predicted for {gpu} at the clock of training")
    if here.gpu != gpu:
        say("these are different devices: their difference is no error of the prediction")


def _ops(loaded: Any) -> list[LayerOp]:
    from ..calibration.measure.layer import LayerOp
    from ..sim.lowering.layer_kernels import layer_kernels

    return [
        LayerOp(
            name=one.name,
            direction=one.direction,
            kernel=one.kernel,
            predicted_s=one.seconds,
            dtype=one.dtype,
            operation=one.operation,
            rows=one.rows,
            columns=one.columns,
        )
        for one in layer_kernels(loaded)
    ]


def _totals(measured: Sequence[MeasuredOp]) -> list[tuple[str, float, float]]:
    """(part, predicted seconds, measured seconds) of forward, backward and both, of what was measured."""
    totals = []
    for part in ("forward", "backward", "layer"):
        timed = [one for one in measured if part in ("layer", one.op.direction)]
        pairs = [(one.op.predicted_s, one.measured_s) for one in timed if one.measured_s is not None]
        totals.append((part, sum(p for p, _ in pairs), sum(m for _, m in pairs)))
    return totals


def _error(predicted_s: float, measured_s: float | None) -> float | None:
    return predicted_s / measured_s - 1 if measured_s else None


def _document(measured: Sequence[MeasuredOp], here: Device, gpu: str) -> dict[str, Any]:
    return {
        "device": here.name,
        "device_gpu": here.gpu,
        "gpu": gpu,
        "kernels": [
            {
                "name": one.op.name,
                "direction": one.op.direction,
                "ran": one.ran,
                "predicted_s": one.op.predicted_s,
                "measured_s": one.measured_s,
                "sm_clock_hz": one.sm_clock_hz,
                "error": _error(one.op.predicted_s, one.measured_s),
            }
            for one in measured
        ],
        "totals": [
            {"part": part, "predicted_s": p, "measured_s": m, "error": _error(p, m)}
            for part, p, m in _totals(measured)
        ],
    }


def _print(measured: Sequence[MeasuredOp]) -> None:
    """Equal kernels of a pass on one line, with their number and their times together."""
    from ..calibration.validation.grids import Grid
    from ..calibration.validation.tables import print_grid

    groups: dict[MeasuredOp, int] = {}
    for one in measured:
        groups[one] = groups.get(one, 0) + 1
    rows = [
        _line(
            (one.op.direction, one.op.name, str(count), one.ran),
            count * one.op.predicted_s,
            None if one.measured_s is None else count * one.measured_s,
        )
        for one, count in groups.items()
    ]
    rows += [_line((part, "all measured", "", ""), p, m) for part, p, m in _totals(measured)]
    columns = ("pass", "kernel", "times", "ran", "predicted us", "measured us", "predicted / measured")
    print_grid(Grid(title="One layer, kernel by kernel", columns=columns, rows=tuple(rows)), console())


def _line(names: tuple[str, ...], predicted_s: float, measured_s: float | None) -> tuple[str, ...]:
    predicted = f"{predicted_s * 1e6:.1f}"
    if not measured_s:
        return *names, predicted, "-", "-"
    return *names, predicted, f"{measured_s * 1e6:.1f}", f"{predicted_s / measured_s:.3g}"
