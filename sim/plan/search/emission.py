"""Which framework's words a plan is written in, and whether they can express a layout.

Knows a framework by its name and version; what its files can hold is in sim/scenario/importers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...scenario.errors import ScenarioError
from ..axes import LAYOUT

if TYPE_CHECKING:
    from collections.abc import Container

    from ...scenario.models import Scenario

_OF_A_RUN = ("model.", "training.", "cluster.")
_FOLLOWS = ("parallelism.dp", "model.padded_vocab_size")


@dataclass(frozen=True, kw_only=True)
class Emission:
    """A framework, and a version of it as its releases are called; None: the one that the software is of."""

    framework: str
    version: str | None = None

    def text(self, scenario: Scenario) -> str:
        """The flags or the file of a scenario. Raises as ``export`` does."""
        from ...scenario.importers.export import export  # what most plans do without

        return export(scenario, self.framework, self.version)

    def left_out(self, text: str, scenario: Scenario) -> list[str]:
        """What of a scenario its text says nothing of, a sentence for each."""
        from ...scenario.importers.export import left_out

        return left_out(text, scenario, self.framework, self.version)

    def version_for(self, scenario: Scenario) -> str | None:
        """The version that is written; None where the framework's files are the same in all."""
        from ...scenario.importers.registry import EXPORTERS

        return self.version or EXPORTERS.get(self.framework).version_for(scenario)

    def unsayable(self, scenario: Scenario) -> str:
        """The fields that the framework cannot say, one after the other; empty where it can say all."""
        try:
            self.text(scenario)
        except ScenarioError as error:
            return ", ".join(dict.fromkeys(problem.path for problem in error.problems))
        return ""

    def check(self, scenario: Scenario, varied: Container[str]) -> None:
        """Refuse a run that no layout makes sayable: by its model, its machine, its batch.

        Raises:
            ScenarioError: the fields that are no layout's, and are not ``varied``, with the reason of each.
            ValueError: no such framework, or no such version of it.
        """
        try:
            self.text(scenario)
        except ScenarioError as error:
            fixed = [one for one in error.problems if _of_the_run(one.path) and one.path not in varied]
            if fixed:
                raise ScenarioError(fixed) from None


def _of_the_run(path: str) -> bool:
    """Whether a field is the same in every layout."""
    layout = any(path == name or path.startswith(f"{name}.") for name in (*LAYOUT, *_FOLLOWS))
    return not layout and (path.startswith(_OF_A_RUN) or path == "model")
