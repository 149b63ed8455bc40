"""Whether a scenario that comes from Python is sound, as strictly as loading; cheap for one that was loaded.

Frozen models can be copied with other fields (``model_copy``) and made without a check
(``model_construct``); what is simulated goes through here. Does not know documents.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import BaseModel, ValidationError

from ...hardware.explain import dotted, field_path
from .checks_faults import bare_machine, presets_exist, targets_exist
from .errors import Mark, Problem, ScenarioError
from .explain import explained
from .faults.bare import Bare
from .finding import Finding, Inconsistent
from .models import Scenario


def checked(scenario: object) -> Scenario:
    """``scenario``, or an equal one: the same if it is as it was checked; else it is checked now.

    Raises:
        ScenarioError: with every problem found, such as of a ``model_copy`` with other fields.
    """
    if not isinstance(scenario, Scenario):
        message = f"a Scenario is needed, not {type(scenario).__name__}; load_scenario gives one"
        raise ScenarioError([Problem(mark=Mark(file="scenario"), path="", message=message)])
    if scenario.is_checked:
        return scenario
    try:
        return Scenario.model_validate(scenario)
    except ValidationError as failure:
        name = str(getattr(scenario, "name", "scenario"))
        raise ScenarioError(problems_of(failure, Mark(file=name))) from None


def checked_campaign(loaded: Scenario | Bare) -> Scenario | Bare:
    """The same of a campaign, which may have no model. Errors as above."""
    if not isinstance(loaded, Bare):
        return checked(loaded)
    mark = Mark(file=str(getattr(loaded, "name", "campaign")))
    try:
        read = Bare.model_validate(loaded)
    except ValidationError as failure:
        raise ScenarioError(problems_of(failure, mark, Bare)) from None
    found = [Problem(mark=mark, path=dotted(one.path), message=one.message) for one in of_bare(read)]
    if found:
        raise ScenarioError(found)
    return read


def of_bare(read: Bare) -> Iterator[Finding]:
    """What contradicts itself in a campaign without a model."""
    machine = bare_machine(read.cluster, read.faults.domains, read.recovery.elastic.replicas)
    yield from presets_exist(read.faults)
    yield from targets_exist(read.faults, machine.counts)


def problems_of(failure: ValidationError, mark: Mark, part: type[BaseModel] = Scenario) -> list[Problem]:
    """What pydantic found in a scenario that is no document, and every contradiction between its parts."""
    found = []
    for error in failure.errors(include_url=False):
        reason = error.get("ctx", {}).get("error")
        if isinstance(reason, Inconsistent):
            found += [
                Problem(mark=mark, path=dotted(one.path), message=one.message) for one in reason.findings
            ]
        else:
            message = explained(error, part, {})
            found.append(Problem(mark=mark, path=dotted(field_path(error)), message=message))
    return found
