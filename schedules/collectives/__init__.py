"""The collective algorithms, found by name: every module of this folder that ends in ``ALGORITHM = ...``."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from ..transfers.algorithm import Algorithm
from ..unknown import unknown


def get(name: str) -> Algorithm:
    """The algorithm of that name. Raises ValueError with the nearest and all known names.

    >>> get("ring").title
    'Ring'
    """
    if (alone := _in_its_file(name)) is not None:
        return alone
    known = _found()
    if name in known:
        return known[name]
    raise unknown("collective algorithm", name, known)


def names() -> tuple[str, ...]:
    """Names of all algorithms, in alphabetical order."""
    return tuple(_found())


@cache
def _in_its_file(name: str) -> Algorithm | None:
    """The algorithm of the file that is called like it, without importing all the others."""
    plain = name.replace("-", "_")
    if plain not in {found.name for found in iter_modules(__path__)}:
        return None
    algorithm = getattr(import_module(f"{__name__}.{plain}"), "ALGORITHM", None)
    return algorithm if isinstance(algorithm, Algorithm) and algorithm.name == name else None


@cache
def _found() -> dict[str, Algorithm]:
    modules = (import_module(f"{__name__}.{found.name}") for found in iter_modules(__path__))
    algorithms = [module.ALGORITHM for module in modules if hasattr(module, "ALGORITHM")]
    return {
        algorithm.name: algorithm for algorithm in sorted(algorithms, key=lambda algorithm: algorithm.name)
    }
