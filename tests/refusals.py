"""What tests of refusals ask: which field is refused, and which names and values the message has.

The sentence around them is free to be worded better; ``test_no_prose.py`` holds that.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from stepsim.sim.scenario.errors import ScenarioError
from stepsim.sim.scenario.refusal import NotSupported


@contextmanager
def refused_at(field: str, *names: str) -> Iterator[None]:
    """What is done inside is refused at ``field`` alone, with a message that has each of ``names``."""
    with pytest.raises((ScenarioError, NotSupported)) as caught:
        yield
    refusal = caught.value
    problems = refusal.problems if isinstance(refusal, ScenarioError) else ()
    fields = {problem.path for problem in problems} or {getattr(refusal, "field", "")}
    assert fields == {field}
    assert [name for name in names if name not in str(refusal)] == []
