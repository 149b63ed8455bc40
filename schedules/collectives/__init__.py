"""The collective algorithms, found by name: every module of this folder that ends in ``ALGORITHM = ...``."""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from ..transfers.algorithm import Algorithm


def get(name: str) -> Algorithm:
    """The algorithm of that name. Raises ValueError with the nearest and all known names.

    >>> get("ring").title
    'Ring'
    """
    known = _found()
    if name in known:
        return known[name]
    nearest = get_close_matches(name.lower(), known, n=1, cutoff=0.4)
    hint = f" Did you mean {nearest[0]}?" if nearest else ""
    raise ValueError(f"no collective algorithm is called {name!r}.{hint} Known: {', '.join(known)}")


def names() -> tuple[str, ...]:
    """Names of all algorithms, in alphabetical order."""
    return tuple(_found())


@cache
def _found() -> dict[str, Algorithm]:
    modules = (import_module(f"{__name__}.{found.name}") for found in iter_modules(__path__))
    algorithms = [module.ALGORITHM for module in modules if hasattr(module, "ALGORITHM")]
    return {
        algorithm.name: algorithm for algorithm in sorted(algorithms, key=lambda algorithm: algorithm.name)
    }
