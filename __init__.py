"""stepsim: what one training step of a large language model costs on a GPU cluster.

    >>> import stepsim
    >>> "simulate" in dir(stepsim)
    True

``simulate(load_scenario("llama3.1-405b-16k"))`` gives a ``Result``. Knows the public names and
where they live; imports none of them until asked, so that importing the package costs nothing and
no module is loaded under the name of the checkout's folder as well.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .sim.report.result import Result
    from .sim.scenario.load import load_scenario
    from .sim.scenario.models import Scenario
    from .sim.simulate import simulate

__version__ = "0.1.0"

__all__ = ["Result", "Scenario", "__version__", "load_scenario", "simulate"]

_HOMES = {
    "Result": ".sim.report.result",
    "Scenario": ".sim.scenario.models",
    "load_scenario": ".sim.scenario.load",
    "simulate": ".sim.simulate",
}


def __getattr__(name: str) -> object:
    """Public names, imported on first use (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name], __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
