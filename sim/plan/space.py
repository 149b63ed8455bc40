"""All legal layouts of a scenario as arrays: each axis crossed with the next, what is illegal cut at once.

Knows how layouts are enumerated and counted. Which values are tried is ``axes.py``'s, what is legal
``legality.py``'s; what a layout costs is not known here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from ...hardware.calibrated.overlay import calibrated_profile
from ..scenario.errors import Mark, Problem, ScenarioError
from ..scenario.machine import gpu_of
from ..scenario.refusal import NotSupported
from .axes import DP, LAYOUT, Axes, Values, layout_values, unique
from .base_scenarios import OWNERS, RefusedValues, base_of, left_out
from .crossed import Crossed, array_of
from .cut import cut
from .draft import Drafts, typed, unpadded
from .fields import field_value, refuse_unknown, slip
from .legality import refuse_any_layout, rules
from .row_numbers import numbered_rows
from .same_twice import ZERO, LayoutRule
from .twins import Twins

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...hardware.profile import GpuProfile
    from ..scenario.models import Scenario

    Codes = NDArray[np.int64]

RECOMPUTE = "training.recompute"


@dataclass(frozen=True, kw_only=True)
class Space:
    """Legal layouts of a ``scenario``, numbered from 0.

    ``bases`` are the scenario under each combination of the fields that are no axes of a layout (GPU type,
    batch, ...), ``base`` says which of them each layout belongs to. ``values`` are those that a field has
    somewhere, in a document's form, ``codes`` which of them each layout has. ``refused`` counts what was cut,
    by reason, each layout under the first reason that cuts it: with the legal ones that is the whole product
    of all axes. ``own`` is the number of the scenario's own layout, None where it is fixed away or not
    modelled. Combinations that are no scenario in any layout are ``left_out``, one of the ``refused`` each.
    """

    scenario: Scenario
    bases: tuple[Scenario, ...]
    base: Codes
    values: Mapping[str, Values]
    codes: Mapping[str, Codes]
    refused: Mapping[str, int]
    own: int | None = None
    left_out: tuple[RefusedValues, ...] = ()

    def __len__(self) -> int:
        return len(self.base)

    @cached_property
    def columns(self) -> Mapping[str, NDArray[Any]]:
        """By dotted field, the values of all layouts as one array, in the order of their numbers. Its type is
        integer or boolean where all values are, else object."""
        return {name: array_of(self.values[name])[code] for name, code in self.codes.items()}

    def settings(self, i: int) -> dict[str, Any]:
        """Fields and values of layout ``i``, for ``Scenario.with_``; None takes back what is said of one."""
        found = {name: self.values[name][code[i]] for name, code in self.codes.items()}
        settings = {
            name: value for name, value in found.items() if name in self._stated or value != self._own[name]
        }
        return settings | _taken_back(self.bases[int(self.base[i])], settings)

    @cached_property
    def _own(self) -> dict[str, Any]:
        return {name: field_value(self.scenario, name) for name in self.codes}

    @cached_property
    def _stated(self) -> set[str]:
        """The fields that a layout always states, since another value of one may follow where nothing is
        stated."""
        return {
            name for name in self.codes if name.startswith("parallelism.") or len(self.values[name]) > 1
        } - {
            name for name, values in self.values.items() if values == (None,) and self._own[name] is None
        } | ({"schedule"} & set(self.codes))

    def scenario_of(self, i: int) -> Scenario:
        """The scenario with layout ``i``, checked."""
        if i not in self._checked:
            self._checked[i] = self.scenario.with_(self.settings(i))
        return self._checked[i]

    def replayed(self, i: int) -> Scenario:
        """The same as far as a step follows from it, checked, and made in a fifth of the time: a title and
        published figures, which are another job's, stay."""
        if i not in self._replayed:
            self._replayed[i] = self.draft(i).compared()
        return self._replayed[i]

    @cached_property
    def lighter(self) -> Codes:
        """For each layout the one that is the same and recomputes nothing; itself where there is none.

        Whatever a backward recomputes it runs besides all that it runs otherwise, on the same streams and in
        the same order: least times of the one are least times of the other.
        """
        values, rows = self.values[RECOMPUTE], np.arange(len(self))
        if "none" not in values:
            return rows
        names = [name for name in self.codes if name != RECOMPUTE]
        codes = [self.base, *(self.codes[name] for name in names)]
        number, *_ = numbered_rows(codes, [len(self.bases), *(len(self.values[name]) for name in names)])
        plain = np.flatnonzero(self.codes[RECOMPUTE] == values.index("none"))
        found = np.full(int(number.max(initial=-1)) + 1, -1, dtype=np.int64)
        found[number[plain]] = plain
        return np.where(found[number] >= 0, found[number], rows)

    def twin(self, i: int) -> int:
        """The layout whose step and memory are those of layout ``i`` (twins.py)."""
        return self._twins.of(i)

    @cached_property
    def _twins(self) -> Twins:
        return Twins(bases=self.bases, base=self.base, values=self.values, codes=self.codes, draft=self.draft)

    def draft(self, i: int) -> Scenario:
        """Layout number ``i`` as a scenario that was not checked, made in some microseconds."""
        codes = [int(self.codes[name][i]) for name in self._changing]
        return self._drafts[int(self.base[i])].of(self._changing, codes)

    @cached_property
    def _drafts(self) -> list[Drafts]:
        return [Drafts(base=unpadded(base), values=self._typed) for base in self.bases]

    @cached_property
    def _replayed(self) -> dict[int, Scenario]:
        return {}

    @cached_property
    def _checked(self) -> dict[int, Scenario]:
        """The scenarios that were asked for."""
        return {}

    @cached_property
    def _changing(self) -> tuple[str, ...]:
        """The fields of a layout that are not what they are in every base."""
        return tuple(
            name
            for name in (*LAYOUT, DP)
            if len(self.values[name]) > 1
            or any(field_value(base, name) != self.values[name][0] for base in self.bases)
        )

    @cached_property
    def _typed(self) -> dict[str, Values]:
        return {
            name: typed(self.scenario, name, values)
            for name, values in self.values.items()
            if name in LAYOUT or name == DP
        }


@dataclass(frozen=True, kw_only=True)
class _Part:
    """The layouts of one base: ``values`` by field, their ``codes``, and how many were cut why."""

    changes: Mapping[str, Any]
    base: Scenario
    values: Mapping[str, Values]
    codes: Mapping[str, Codes]
    refused: Counter[str]

    def __len__(self) -> int:
        return len(self.codes[DP])


def space_of(
    scenario: Scenario,
    *,
    fix: Mapping[str, Any] | None = None,
    vary: Mapping[str, Sequence[Any]] | None = None,
    axes: Axes = Axes.LAYOUT,
) -> Space:
    """Every legal layout of ``scenario``.

    ``fix`` gives fields one value, ``vary`` gives fields of any block several values, tried in turn. A field
    that is in neither has the values of ``axes.py`` if it is an axis of a layout (one of the usual ``axes``,
    or of all), else the scenario's own value.

    Raises:
        ScenarioError: a field or a value that a scenario does not have.
        NotSupported: GPUs that differ, or other jobs on the fabric; or something that no layout of the
            scenario can run, such as kernels that its GPU does not have.
    """
    _refuse_cluster(scenario)
    given = _given(scenario, fix or {}, vary or {})
    outer = {name: values for name, values in given.items() if name not in LAYOUT and name != DP}
    inner = {name: values for name, values in given.items() if name not in outer}
    parts, refused, missing = [], Counter[str](), list[RefusedValues]()
    for chosen in product(*outer.values()):
        changes = dict(zip(outer, chosen, strict=True))
        base = base_of(scenario, changes)
        if isinstance(base, list):
            if nonsense := slip(base[0], outer):
                raise nonsense
            missing.append(left_out(changes, base))
            refused[missing[-1].reason] += 1
        else:
            profile = calibrated_profile(gpu_of(base.cluster), base.calibration)
            if not outer:
                refuse_any_layout(base, profile)
            parts.append(_layouts(base, changes, inner, profile, axes))
    return replace(_joined(scenario, outer, parts, refused), left_out=tuple(missing))


def _refuse_cluster(scenario: Scenario) -> None:
    """NotSupported for a cluster on which layouts are not compared."""
    if scenario.cluster.variation is not None:
        raise NotSupported("cluster.variation", "layouts are compared on equal GPUs; leave it out")
    if scenario.cluster.other_gpus:
        raise NotSupported("cluster.other_gpus", "layouts are compared on equal GPUs; leave it out")
    if scenario.cluster.neighbours:
        raise NotSupported("cluster.neighbours", "layouts are compared one by one; leave it out")


def _given(
    scenario: Scenario, fix: Mapping[str, Any], vary: Mapping[str, Sequence[Any]]
) -> dict[str, Values]:
    """The values of each field that is fixed or varied. ScenarioError for a field or value that the scenario
    cannot have, and for a field that is both."""
    given: dict[str, Values] = {name: (value,) for name, value in fix.items()}
    given |= {name: tuple(values) for name, values in vary.items()}
    for name, values in given.items():
        refuse_unknown(scenario, name)
        _refuse_contradiction(scenario, name, fix, vary)
        if name in LAYOUT or name == DP:
            typed(scenario, name, values)
    return given


def _refuse_contradiction(
    scenario: Scenario, name: str, fix: Mapping[str, Any], vary: Mapping[str, Sequence[Any]]
) -> None:
    """ScenarioError for a field that is fixed at one value and varied over others. One that keeps the
    scenario's own, with those of its whole block, may be varied all the same."""
    if name not in fix or name not in vary or fix[name] == field_value(scenario, name):
        return
    message = f"it is fixed at {fix[name]} and varied over others; leave one of both out"
    raise ScenarioError([Problem(mark=Mark(file=scenario.name), path=name, message=message)])


def _layouts(
    base: Scenario,
    changes: Mapping[str, Any],
    given: Mapping[str, Values],
    profile: GpuProfile,
    axes: Axes,
) -> _Part:
    """Cross the axes one by one, and cut by each rule as soon as all that it reads is there."""
    values = {**layout_values(base, axes), **{name: found for name, found in given.items() if name != DP}}
    plain = unpadded(base)
    pending, refused = rules(plain, profile, axes), Counter[str]()
    drafts = Drafts(base=plain, values={name: typed(base, name, found) for name, found in values.items()})
    left = int(np.prod([len(found) for found in values.values()], dtype=object))
    rows, crossed = Crossed(), set[str]()
    for axis in LAYOUT:
        size = len(values[axis])
        left //= size
        rows = rows.by(axis, size)
        crossed.add(axis)
        ready = [rule for rule in pending if {*rule.reads} <= crossed]
        pending = [rule for rule in pending if rule not in ready]
        for rule in ready:
            wanted = _against(rule, plain, given) if rule.about else []
            kept = {code for code, one in enumerate(values.get(rule.about, ())) if one in wanted}
            rows, gone = cut(rows, drafts, rule, kept)
            refused.update({reason: count * left for reason, count in gone.items()})
        if axis == "parallelism.pp":
            rows, found, cut_by_dp = _with_dp(rows, values, base, given.get(DP))
            values[DP] = found
            drafts = replace(drafts, values={**drafts.values, DP: found})
            crossed.add(DP)
            refused[DP] += cut_by_dp * left
    assert not pending, [rule.reads for rule in pending]
    codes = {name: rows.of(name) for name in (*LAYOUT, DP)}
    return _Part(changes=changes, base=base, values=values, codes=codes, refused=+refused)


def _against(rule: LayoutRule, base: Scenario, given: Mapping[str, Values]) -> Sequence[Any]:
    """Values that are kept against what a framework says it has: those that a user names, here or in a
    scenario that is against it itself. One that follows where the rule does not apply is nobody's wish."""
    own = [field_value(base, rule.about)] if rule.keeps_own or rule.breaks(base) else []
    return [*own, *given.get(rule.about, ())]


def _with_dp(
    rows: Crossed, values: Mapping[str, Values], base: Scenario, wanted: Values | None
) -> tuple[Crossed, Values, int]:
    """The data-parallel size, which follows; and how many layouts are cut since it is not ``wanted``."""
    sizes = [
        array_of(values[f"parallelism.{axis}"])[rows.of(f"parallelism.{axis}")] for axis in ("tp", "cp", "pp")
    ]
    dp = base.cluster.gpus // (sizes[0] * sizes[1] * sizes[2])
    found, code = np.unique(dp, return_inverse=True)
    rows = replace(rows, codes={**rows.codes, DP: code.ravel()})
    if wanted is None:
        return rows, tuple(found.tolist()), 0
    stands = np.isin(dp, wanted)
    return rows.only(stands), tuple(found.tolist()), int((~stands).sum())


def _joined(
    scenario: Scenario, outer: Mapping[str, Values], parts: Sequence[_Part], refused: Counter[str]
) -> Space:
    """The layouts of all bases in a row, with the values of all of them."""
    values: dict[str, Values] = dict(outer)
    for name in (*LAYOUT, DP):
        values[name] = unique(value for part in parts for value in part.values[name])
    sizes = [len(part) for part in parts]
    codes: dict[str, Codes] = {}
    for name, found in values.items():
        if name in outer:
            own = [found.index(part.changes[name]) for part in parts]
            codes[name] = np.repeat(np.array(own, dtype=np.int64), sizes)
        else:
            renamed = [_renamed(part, name, found) for part in parts]
            codes[name] = renamed[0] if len(parts) == 1 else np.concatenate([np.zeros(0, np.int64), *renamed])
    for part in parts:
        refused.update(part.refused)
    base = np.repeat(np.arange(len(parts)), sizes)
    space = Space(
        scenario=scenario,
        bases=tuple(part.base for part in parts),
        base=base,
        values=values,
        codes=codes,
        refused=dict(refused),
    )
    return replace(space, own=_own(space))


def _renamed(part: _Part, name: str, values: Values) -> Codes:
    """The codes of a field in a part, as those of ``values``."""
    places = [values.index(value) for value in part.values[name]]
    if places == [*range(len(places))]:
        return part.codes[name]
    return np.array(places, dtype=np.int64)[part.codes[name]]


def _own(space: Space) -> int | None:
    """The number of the scenario's own layout in a space; None where the space does not have it."""
    same = np.ones(len(space), dtype=bool)
    for name, code in space.codes.items():
        own = field_value(space.scenario, name)
        same &= np.array([value == own for value in space.values[name]] or [False])[code]
    found = np.flatnonzero(same)
    return int(found[0]) if len(found) else None


def _taken_back(scenario: Scenario, settings: Mapping[str, Any]) -> dict[str, None]:
    """What a scenario says of its own ZeRO stage and a layout of another one has nothing to do with."""
    zero = settings.get(ZERO, scenario.parallelism.zero)
    return {OWNERS: None} if scenario.software.gradients.zero1_broadcasts and zero != 1 else {}
