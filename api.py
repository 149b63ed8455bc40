"""Functions for programs that bring floors together: what a command does, as a call.

Each gives an object; ``document`` turns it into what the command prints with ``--json``. Knows no terminal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from .calibration.explain.explained import Explained
    from .sim.reliability.answers import Answers
    from .sim.report.compare import Comparison
    from .sim.result.result import Result
    from .sim.scenario.models import Scenario

Source = str | Path | Mapping[str, Any]
"""A file, the name of a shipped scenario, or what a file would hold."""

Kind = Literal[
    "scenarios",
    "models",
    "gpus",
    "interconnects",
    "software",
    "schedules",
    "optimizers",
    "faults",
    "fault-presets",
]


def compare(a: Source | Scenario | Result, b: Source | Scenario | Result) -> Comparison:
    """What differs between two steps, ``b`` against ``a``, and where the time went.

    >>> from .sim.scenario.load import load_scenario
    >>> other = load_scenario("llama3-8b-h100", {"training.recompute": "full"})
    >>> found = compare("llama3-8b-h100", other)
    >>> found.step_time_s.b > found.step_time_s.a
    True
    """
    from .sim.report.compare import comparison

    return comparison(_result(a), _result(b))


def explain(
    traces: str | Path | Iterable[str | Path], scenario: Source | Scenario | Result | None = None
) -> Explained:
    """A measured step by its parts, from profiler traces of its ranks; beside the prediction of a scenario.

    Raises:
        ValueError: a file that is not a trace, or no trace at all; naming the file.
    """
    from .calibration.explain.explained import explained
    from .calibration.explain.reading import read_traces
    from .sim.lowering.process_groups import process_groups_of

    paths = [traces] if isinstance(traces, str | Path) else traces
    found, refused = read_traces([Path(path) for path in paths])
    if refused:
        raise ValueError("; ".join(str(one) for one in refused))
    if not found:
        raise ValueError("give a trace: a file of torch's profiler, a folder of them, or several")
    if scenario is None:
        return explained(found)
    result = _result(scenario)
    if result.scenario is None:
        raise ValueError("a replayed program has no scenario to explain a trace by")
    return explained(found, result, process_groups_of(result.scenario))


def faults(
    source: str | Scenario,
    changes: Sequence[str] = (),
    *,
    replications: int | None = None,
    what_if: bool = False,
) -> Answers:
    """Weeks of a scenario with failures, restarts, checkpoints and spares: ``stepsim faults``.

    ``changes`` are lines of ``--set``, where ``source`` is a name or a file. With ``what_if`` also what each
    kind of fault costs and each mitigation gains.

    Raises:
        ValueError: what a scenario, a fault or their combination refuses.
    """
    from .sim.reliability.ask import ask

    return ask(source, changes, replications=replications, what_if=what_if)


def list_names(kind: Kind) -> tuple[str, ...]:
    """Names that a scenario may use, as ``stepsim list`` prints them.

    >>> "H100-SXM5-80GB" in list_names("gpus"), "1f1b" in list_names("schedules")
    (True, True)
    """
    from .hardware.gpus import gpu_names
    from .hardware.interconnect import offered_interconnects
    from .schedules.pipeline import names as names_of_schedules
    from .sim.scenario.documents import scenario_names
    from .sim.scenario.faults.kinds import kind_names
    from .sim.scenario.faults.presets import preset_names
    from .sim.scenario.model.catalogue import model_names
    from .sim.scenario.optimizers import optimizer_names
    from .sim.scenario.software.presets import software_names

    names: dict[str, Callable[[], tuple[str, ...]]] = {
        "scenarios": scenario_names,
        "models": model_names,
        "gpus": gpu_names,
        "interconnects": offered_interconnects,
        "software": software_names,
        "schedules": names_of_schedules,
        "optimizers": optimizer_names,
        "faults": kind_names,
        "fault-presets": preset_names,
    }
    if kind not in names:
        raise ValueError(f"no kind of names is called {kind!r}; known: {', '.join(names)}")
    return names[kind]()


def document(found: Any) -> dict[str, Any]:
    """Every figure of what a function of this package gave, as plain values: what ``--json`` prints.

    Raises:
        TypeError: for anything else.
    """
    from .calibration.explain.explained import Explained
    from .calibration.explain.tables import document as explained_document
    from .sim.reliability.answers import Answers
    from .sim.report.compare import Comparison
    from .sim.report.compare_table import comparison_document
    from .sim.report.reliability.document import answers_document

    if isinstance(found, Comparison):
        return comparison_document(found)
    if isinstance(found, Explained):
        return explained_document(found)
    if isinstance(found, Answers):
        return answers_document(found)
    if hasattr(found, "to_dict"):
        told: dict[str, Any] = found.to_dict()
        return told
    raise TypeError(f"nothing of stepsim's: {type(found).__name__}")


def _result(what: Source | Scenario | Result) -> Result:
    """The prediction of a scenario, however it is given."""
    from .sim.result.result import Result
    from .sim.scenario.load import load_scenario
    from .sim.scenario.models import Scenario
    from .sim.simulate import simulate

    if isinstance(what, Result):
        return what
    return simulate(what if isinstance(what, Scenario) else load_scenario(what))
