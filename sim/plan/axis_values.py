"""Fields and their values as people write them on a command line: ``--fix``, ``--vary`` and sweeps.

Knows how such a line reads; whether the field exists and takes the value, scenarios check.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ...hardware.files import load_yaml
from .axes import DP, LAYOUT
from .fields import field_value, refuse_unknown

if TYPE_CHECKING:
    from ..scenario.models import Scenario

MOST_VALUES = 1000
"""Most values of one field; more are taken for a typing error."""


def fixed(lines: Iterable[str], scenario: Scenario) -> dict[str, Any]:
    """``parallelism.tp=4`` as ``{"parallelism.tp": 4}``; the last value of a field counts.

    A field without a value, ``parallelism.tp``, or the axes of a layout of a whole block, ``parallelism``,
    keep those of the ``scenario``.

    Raises:
        ValueError: a line that is neither.
        ScenarioError: a field without a value that no scenario has.
    """
    found: dict[str, Any] = {}
    for line in lines:
        own = [axis for axis in LAYOUT if axis == line or axis.startswith(f"{line}.")]
        if own:
            found |= {axis: field_value(scenario, axis) for axis in own}
        elif line == DP:
            found[line] = field_value(scenario, line)
        elif "=" not in line:
            refuse_unknown(scenario, line)  # what is no field of a layout is the scenario's own in any case
        else:
            field, text = _parts("--fix", line)
            found[field] = load_yaml(text, f"--fix {line}")
    return found


def varied(lines: Iterable[str], option: str = "--vary") -> dict[str, list[Any]]:
    """``cluster.gpus=64,128`` as ``{"cluster.gpus": [64, 128]}``: the items of a YAML list, each once.

    Raises:
        ValueError: a line that is no field and values, a field given twice, more than MOST_VALUES.

    >>> varied(["cluster.gpus=64,128", "calibration=[],[a.yaml]"])
    {'cluster.gpus': [64, 128], 'calibration': [[], ['a.yaml']]}
    """
    found: dict[str, list[Any]] = {}
    for line in lines:
        field, text = _parts(option, line)
        if field in found:
            raise ValueError(f"{option} {line}: {field} is given twice; give all its values at once")
        values: list[Any] = []
        for value in load_yaml(f"[{text}]", f"{option} {line}"):
            if not any(value == one and type(value) is type(one) for one in values):
                values.append(value)
        if not 1 <= len(values) <= MOST_VALUES:
            raise ValueError(f"{option} {line}: {len(values):,} values; give 1 to {MOST_VALUES:,}")
        found[field] = values
    return found


def check_fields(given: object, what: str, example: str) -> None:
    """ValueError unless the argument ``what`` is a mapping from fields to values.

    >>> check_fields({"parallelism.tp": 4}, "fix", "{'parallelism.tp': 4}")
    """
    if not isinstance(given, Mapping):
        raise ValueError(f"{what}: fields and their values are needed, as in {example}, not {given!r}")


def check_axes(axes: Mapping[str, Any], what: str = "vary") -> None:
    """ValueError for a field whose values are not a list of at least one, such as a bare number.

    >>> check_axes({"cluster.gpus": [64, 128]})
    """
    check_fields(axes, what, "{'cluster.gpus': [64, 128]}")
    for field, values in axes.items():
        if isinstance(values, str | bytes | Mapping) or not isinstance(values, Collection):
            raise ValueError(f"{field}: its values are a list, as in [{values!r}], not {values!r}")
        if not values:
            raise ValueError(f"{field}: there is no value to try; give one at least, or leave the field out")


def _parts(option: str, line: str) -> tuple[str, str]:
    field, equals, text = line.partition("=")
    if not (field.strip() and equals and text.strip()):
        raise ValueError(f"{option} {line}: write field=value, as in {option} parallelism.tp=4")
    return field.strip(), text
