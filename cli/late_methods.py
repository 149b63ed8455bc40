"""Methods of data classes that are compiled when they are first called.

As a module loads, Python up to 3.12 compiles six methods for each data class, each by itself. That is a third
of what loading our modules takes, and a command calls few of them. Later versions compile all of a class at
once, and nothing is changed there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

LATE = ("__repr__", "__eq__", "__hash__", "__setattr__", "__delattr__")
"""All but ``__init__``, whose signature others read."""

_COMPILES = "_create_fn"
"""The function of ``dataclasses`` that compiles a method by its name; a private one."""


def compile_methods_late() -> None:
    """Compile the methods of data classes that are made from now on when they are first called."""
    compiled = getattr(dataclasses, _COMPILES, None)
    if compiled is not None and not hasattr(compiled, "__wrapped__"):
        setattr(dataclasses, _COMPILES, _late(compiled))


def _late(compiled: Callable[..., Any]) -> Callable[..., Any]:
    def method_of(name: str, *args: Any, **named: Any) -> Callable[..., Any]:
        return _Method(compiled, name, args, named).stub() if name in LATE else compiled(name, *args, **named)

    method_of.__wrapped__ = compiled  # type: ignore[attr-defined]
    return method_of


@dataclasses.dataclass(eq=False, repr=False)
class _Method:
    """A method that is not compiled yet, and how it will be."""

    compiled: Callable[..., Any]
    name: str
    args: tuple[Any, ...]
    named: dict[str, Any]
    found: Callable[..., Any] | None = None

    def stub(self) -> Callable[..., Any]:
        """What stands in its place until it is first called."""

        def stub(own: Any, *given: Any) -> Any:
            found = self.found
            if found is None:
                found = self.found = self.compiled(self.name, *self.args, **self.named)
                found.__qualname__ = stub.__qualname__
                for one in type(own).__mro__:
                    if one.__dict__.get(self.name) is stub:
                        setattr(one, self.name, found)
            return found(own, *given)

        stub.__name__ = self.name
        return stub
