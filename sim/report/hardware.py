"""What a description of a machine leaves out, as people and programs read it: the answer of ``stepsim
hardware check``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ...hardware.calibrated.overlay import profile_names
from ...hardware.deviations import NORMAL_P90, Deviation, shipped_deviations
from ...hardware.own_gpu import gpu_from
from ...hardware.own_interconnect import interconnect_from
from ..figures import percent

if TYPE_CHECKING:
    from ...hardware.carried import CarriedFigure, Moves
    from ..scenario.machine_file import HardwareFile

_DECIDES: dict[Moves, str] = {
    "matrix": "GEMMs and attention",
    "memory": "kernels bound by memory",
    "node": "communication inside a host",
    "network": "communication between hosts",
    "details": "details of kernels, and little of the time",
    "capacity": "what fits, and no time",
    "energy": "energy, and no time",
}


def check_document(machine: HardwareFile) -> dict[str, Any]:
    """What the description of a machine leaves out, as one JSON object: for each part (GPU, host, network)
    the figures that were taken from elsewhere, and how unsure that makes a prediction. Doubts are standard
    deviations of the logarithm of the time of that part of a step which the figure decides."""
    parts: dict[str, Any] = {}
    known = shipped_deviations()
    if machine.gpu:
        gpu = gpu_from(machine.gpu)
        parts["gpu"] = {
            "name": gpu.name,
            "kernels_of": gpu.profile_of,
            "doubts": []
            if gpu.measured_as in profile_names()
            else [
                _doubt("kernels were never measured", "matrix", known["unmeasured_gpu"]),
                _doubt("kernels are those of another GPU", "matrix", known["carried_kernels"]),
                _doubt("sustained clock is that of another GPU", "matrix", known["unfitted_clock"]),
            ],
            "left_out": [_figure(one) for one in gpu.carried],
        }
    if machine.interconnect:
        network = interconnect_from(machine.interconnect)
        parts["interconnect"] = {
            "name": network.name,
            "doubts": [_doubt("no collective was measured", "network", _unmeasured(known))],
            "left_out": [_figure(one) for one in network.carried],
        }
    if machine.node:
        usual = "that of the host that its GPU is sold in"
        stated = machine.node.model_fields_set
        left = [name for name in type(machine.node).model_fields if name not in stated and name != "name"]
        parts["node"] = {
            "name": machine.node.name,
            "doubts": [],
            "left_out": [{"field": name, "value": usual} for name in left],
        }
    return parts


def _unmeasured(known: Mapping[str, Deviation]) -> Deviation:
    """The spread of collectives on a network without any log: the error of what no fit saw, and what a whole
    network without logs adds."""
    parts = known["collectives_network"], known["collectives_network_carried"]
    return Deviation(
        sigma=math.hypot(*(one.sigma for one in parts)), source="; ".join(one.source for one in parts)
    )


def _doubt(what: str, moves: Moves, one: Deviation) -> dict[str, Any]:
    return {"what": what, "decides": _DECIDES[moves], "sigma": one.sigma, "source": one.source}


def _figure(one: CarriedFigure) -> dict[str, Any]:
    return {
        "field": one.field,
        "value": one.value,
        "as": one.relative,
        "decides": _DECIDES[one.moves],
        "sigma": one.sigma,
    }


def check_lines(machine: HardwareFile) -> Iterator[str]:
    """``check_document`` as lines of text; widths are those of 90 % intervals."""
    parts = check_document(machine)
    if not parts:
        yield "nothing is described here: GPU, network and host are of the catalogue, or follow from it"
    for part, facts in parts.items():
        kernels = f", kernels as {facts['kernels_of']}" if "kernels_of" in facts else ""
        yield f"{part}: {facts['name']}{kernels}"
        for doubt in facts["doubts"]:
            yield f"  {doubt['what']}: {_width(doubt['sigma'])} on {doubt['decides']}"
        if not facts["left_out"]:
            yield "  every figure is stated"
        for one in facts["left_out"]:
            whose = f" (as {one['as']})" if "as" in one else ""
            wide = f"; {_width(one['sigma'])}" if one.get("sigma") else ""
            decides = f", which decides {one['decides']}" if "decides" in one else ""
            yield f"  not stated: {one['field']}, taken as {one['value']}{whose}{decides}{wide}"


def _width(sigma: float) -> str:
    return f"±{percent(NORMAL_P90 * sigma, 0)}"
