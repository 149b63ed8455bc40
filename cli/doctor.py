"""``stepsim doctor``: what stepsim can use on this machine, and how to get the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .options import JsonOption
from .output import console, echo_json

if TYPE_CHECKING:
    from ..calibration.measure.installation import Installation


def doctor(as_json: JsonOption = False) -> None:
    """Show versions, optional packages, GPUs, profiles of one's own and measured cases that are here.

    Exit code 0 also where optional parts are missing: predictions need none of them.
    """
    from ..calibration.measure.installation import installation

    found = installation()
    if as_json:
        echo_json(found.to_dict())
    else:
        _print(found)


def _print(found: Installation) -> None:
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    table.add_row("stepsim", found.version, found.folder)
    table.add_row("python", found.python, found.system)
    table.add_row("processor", f"{found.cores} cores", f"{found.memory_bytes / 1e9:.0f} GB of memory")
    for package, version in found.required.items():
        table.add_row(package, version or "missing", "" if version else "pip install stepsim")
    for extra, packages in found.extras.items():
        for package, version in packages.items():
            table.add_row(package, version or "not installed", f"for {extra.what}: stepsim[{extra.name}]")
    gpus = ", ".join(found.gpus) if found.gpus else "none seen"
    table.add_row("GPUs", gpus, "only calibrate kernels, layer and collectives use any")
    cases = f"{found.case_files} files of measured cases" if found.case_files else "no measured cases"
    table.add_row("STEPSIM_SHARED", cases, found.shared)
    profiles = ", ".join(found.profiles) if found.profiles else "none in this folder"
    table.add_row("own profiles", profiles, "written by calibrate fit, named by calibration in a scenario")
    console().print(table)
