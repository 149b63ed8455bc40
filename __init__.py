"""Predict what one training step of a large language model costs on a GPU cluster.

    >>> import stepsim
    >>> scenario = stepsim.load_scenario("llama3-8b-h100", {"training.micro_batch": 2})
    >>> result = stepsim.simulate(scenario)
    >>> result.fits, 0.3 < result.mfu < 0.6
    (True, True)

``load_scenario`` takes a YAML file, the name of a shipped scenario, or a mapping, and changes to it;
``scenario.with_({"parallelism.tp": 4})`` changes a scenario that is there. ``simulate`` gives a ``Result``:
``step_time_s``, ``mfu``, ``memory``, ``critical_path``, ``interval``, ``assumptions``, ``spans`` (a pandas
DataFrame), ``to_dict()`` (what ``stepsim run --json`` prints). ``plan`` finds the best layouts of a scenario,
``sweep`` predicts it for values of any fields, ``sensitivity`` says what faster parts gain; each gives a
``frame`` and ``to_dict()`` (docs/plan.md). ``compare`` says what differs between two, ``faults`` simulates
weeks with failures, ``explain`` reads traces of a real step; ``document`` turns what each gives into plain
values. ``list_names("gpus")`` lists what a scenario may name. What is wrong with a scenario is a
``ScenarioError``, what cannot be modelled a ``NotSupported`` that names the field; both are ValueErrors.

The command ``stepsim --help`` does the same from a shell. Fields of scenarios: docs/scenario.md.
"""

# Imports none of the public names until asked (PEP 562), so that importing the package costs nothing and no
# module is loaded under the name of the checkout's folder as well.

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .api import compare, document, explain, faults, list_names
    from .sim.plan.questions.sensitivity import sensitivity
    from .sim.plan.questions.sweep import sweep
    from .sim.plan.search.plan import plan
    from .sim.result.result import Result
    from .sim.scenario.errors import ScenarioError
    from .sim.scenario.load import load_scenario
    from .sim.scenario.models import Scenario
    from .sim.scenario.refusal import NotSupported
    from .sim.simulate import simulate

__version__ = "0.2.0"

__all__ = [
    "NotSupported",
    "Result",
    "Scenario",
    "ScenarioError",
    "__version__",
    "compare",
    "document",
    "explain",
    "faults",
    "list_names",
    "load_scenario",
    "plan",
    "sensitivity",
    "simulate",
    "sweep",
]

_HOMES = {
    "NotSupported": ".sim.scenario.refusal",
    "Result": ".sim.result.result",
    "Scenario": ".sim.scenario.models",
    "ScenarioError": ".sim.scenario.errors",
    "compare": ".api",
    "document": ".api",
    "explain": ".api",
    "faults": ".api",
    "list_names": ".api",
    "load_scenario": ".sim.scenario.load",
    "plan": ".sim.plan.search.plan",
    "sensitivity": ".sim.plan.questions.sensitivity",
    "simulate": ".sim.simulate",
    "sweep": ".sim.plan.questions.sweep",
}


def __getattr__(name: str) -> object:
    """Public names, imported on first use (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name], __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
