"""Methods of data classes that are compiled when they are first called do what all others do."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass
from typing import Any

import pytest

from stepsim.cli.late_methods import LATE, compile_methods_late

pytestmark = pytest.mark.skipif(
    not hasattr(dataclasses, "_create_fn"), reason="this Python compiles all methods of a class at once"
)


@dataclass(frozen=True, kw_only=True)
class Kept:
    """A data class with all of its methods."""

    one: int
    other: tuple[object, ...] = ()


def _compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of methods in the order in which they are compiled from now on."""
    compiled: list[str] = []
    create: Callable[..., Any] = dataclasses._create_fn  # type: ignore[attr-defined]
    create = getattr(create, "__wrapped__", create)  # where a command ran in this process

    def noted(name: str, *args: Any, **named: Any) -> Any:
        compiled.append(name)
        return create(name, *args, **named)

    monkeypatch.setattr(dataclasses, "_create_fn", noted)
    compile_methods_late()
    return compiled


def _frozen(*, slots: bool) -> Any:
    class Kept:
        one: int
        other: tuple[object, ...] = ()

    made: Callable[[Any], Any] = dataclass(frozen=True, kw_only=True, slots=slots)
    return made(Kept)


@pytest.mark.parametrize("slots", [False, True])
def test_what_is_compiled_late_does_the_same(monkeypatch: pytest.MonkeyPatch, slots: bool) -> None:
    compiled = _compiled(monkeypatch)
    late = _frozen(slots=slots)
    assert compiled == ["__init__"]

    class Longer(late):  # type: ignore[misc,valid-type]
        """Methods are those of the class above, and stay there."""

    for _ in range(2):
        for made in (late, Longer):
            assert made(one=1, other=(2,)) == made(one=1, other=(2,))
            assert made(one=1) != made(one=2)
            assert made(one=1) != (1,)
            assert hash(made(one=1, other=(2,))) == hash(Kept(one=1, other=(2,)))
            assert repr(made(one=1)).endswith(f"{made.__name__}(one=1, other=())")
    with pytest.raises(FrozenInstanceError, match="'one'"):
        late(one=1).one = 2
    with pytest.raises(FrozenInstanceError, match="'one'"):
        del late(one=1).one
    assert sorted(compiled) == sorted(["__init__", *LATE])
    assert late.__hash__.__qualname__.endswith("Kept.__hash__")
    assert not {*LATE} & {*vars(Longer)}


def test_methods_are_compiled_each_by_itself_and_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled, late = _compiled(monkeypatch), _frozen(slots=False)
    before = late.__hash__
    assert {late(one=1): 2}[late(one=1)] == 2
    assert compiled == ["__init__", "__hash__", "__eq__"]
    assert late.__hash__ is not before
    assert before(late(one=1)) == hash(late(one=1))
    assert compiled == ["__init__", "__hash__", "__eq__"]


def test_a_method_that_is_first_called_of_a_class_below_stays_in_that_above(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled, late = _compiled(monkeypatch), _frozen(slots=False)
    before = late.__hash__

    class Longer(late):  # type: ignore[misc,valid-type]
        """It has no method of its own."""

    assert hash(Longer(one=1)) == hash(late(one=1))
    assert compiled == ["__init__", "__hash__"]
    assert late.__hash__ is not before
    assert "__hash__" not in vars(Longer)


def test_a_command_compiles_them_late_and_a_library_does_not() -> None:
    told = "import dataclasses, sys; print(hasattr(dataclasses._create_fn, '__wrapped__'), file=sys.stderr)"
    command = f"import atexit; atexit.register(lambda: exec({told!r}))\nimport runpy\n"
    command += "runpy.run_module('stepsim.cli.main', run_name='__main__')"
    for code, late in ((command, "True"), (f"import stepsim, stepsim.api\n{told}", "False")):
        done = subprocess.run(
            [sys.executable, "-c", code, "--help"], capture_output=True, text=True, timeout=60, check=True
        )
        assert done.stderr.split()[-1] == late
