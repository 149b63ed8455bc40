"""Whether a scenario that comes from Python is sound, as strictly as loading; cheap for one that was loaded.

Frozen models can be copied with other fields (``model_copy``) and made without a check
(``model_construct``); what is simulated goes through here. Does not know documents.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import ValidationError

from ...hardware.explain import dotted
from .errors import Mark, Problem, ScenarioError
from .explain import problems_of
from .models import Scenario

if TYPE_CHECKING:
    from .faults.bare import Bare


def checked(scenario: object) -> Scenario:
    """``scenario``, or an equal one: the same if it is as it was checked; else it is checked now.

    Raises:
        ScenarioError: with every problem found, such as of a ``model_copy`` with other fields.
    """
    if not isinstance(scenario, Scenario):
        message = f"a Scenario is needed, not {type(scenario).__name__}; load_scenario gives one"
        raise ScenarioError([Problem(mark=Mark(file="scenario"), path="", message=message)])
    return scenario.checked()


def checked_campaign(loaded: Scenario | Bare) -> Scenario | Bare:
    """A campaign, which may have no model, checked in the same way. Errors as above."""
    from .checks_faults import of_bare
    from .faults.bare import Bare

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
