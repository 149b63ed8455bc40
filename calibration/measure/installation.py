"""What the package can use on this machine: versions, optional packages, GPUs, measured cases.

Imports none of the packages that it lists; GPUs are those that the driver lists. Judges nothing.
"""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).resolve().parents[2]
REQUIRED = ("simpy", "networkx", "numpy", "pandas", "pydantic", "scipy", "typer", "matplotlib")


@dataclass(frozen=True, kw_only=True)
class Extra:
    """An optional part of the package: its name for pip, and what it is for."""

    name: str
    what: str
    packages: tuple[str, ...]


EXTRAS = (
    Extra(name="calibration", what="measuring kernels and collectives", packages=("torch", "triton")),
    Extra(name="page", what="stepsim serve", packages=("starlette", "uvicorn")),
    Extra(name="chakra", what="Chakra execution traces", packages=("protobuf",)),
    Extra(name="parquet", what="Parquet files", packages=("pyarrow",)),
    Extra(name="cluster", what="plans on a cluster", packages=("ray",)),
)


@dataclass(frozen=True, kw_only=True)
class Installation:
    """Versions by package are None where it is missing. ``profiles`` are files ``*.profile.yaml`` of the
    working folder, ``case_files`` the measured cases under ``shared``."""

    version: str
    folder: str
    python: str
    system: str
    cores: int
    memory_bytes: float
    required: Mapping[str, str | None]
    extras: Mapping[Extra, Mapping[str, str | None]]
    gpus: tuple[str, ...]
    shared: str
    case_files: int
    profiles: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON has it."""
        return {
            "version": self.version,
            "folder": self.folder,
            "python": self.python,
            "system": self.system,
            "cores": self.cores,
            "memory_bytes": self.memory_bytes,
            "required": dict(self.required),
            "extras": {extra.name: dict(packages) for extra, packages in self.extras.items()},
            "gpus": list(self.gpus),
            "shared": self.shared,
            "case_files": self.case_files,
            "profiles": list(self.profiles),
        }


def installation() -> Installation:
    """What is here now."""
    shared = Path(os.environ.get("STEPSIM_SHARED", "../shared"))
    cases = [*shared.glob("data/cases/*.yaml"), *shared.glob("data/second/cases/*.yaml")]
    return Installation(
        version=_version("stepsim") or "not installed",
        folder=str(PACKAGE),
        python=platform.python_version(),
        system=platform.platform(terse=True),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory_bytes=_memory_bytes(),
        required={package: _version(package) for package in REQUIRED},
        extras={extra: {package: _version(package) for package in extra.packages} for extra in EXTRAS},
        gpus=listed_gpus(),
        shared=str(shared),
        case_files=len(cases),
        profiles=tuple(sorted(path.name for path in Path().glob("*.profile.yaml"))),
    )


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _memory_bytes() -> float:
    """Bytes of the machine's memory; 0 where the system does not say."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE")) * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 0.0


def listed_gpus(
    command: tuple[str, ...] = ("nvidia-smi", "--query-gpu=name", "--format=csv,noheader"),
) -> tuple[str, ...]:
    """Names of the GPUs that the driver's own tool lists; none where there is no such tool, or it fails."""
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(line.strip() for line in told.splitlines() if line.strip())
