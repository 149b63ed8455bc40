"""Building a frozen dataclass from a document, with every key and type checked.

Knows dataclasses and their annotations only. Takes ``int``, ``float``, ``bool``, ``str``,
``object`` (anything), ``Literal``, ``X | None``, ``tuple[X, ...]``, dataclasses, and numbers
``Annotated`` with AtLeast.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from difflib import get_close_matches
from functools import lru_cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from ...hardware.shown import clipped
from ...hardware.shown import value_text as _show

T = TypeVar("T")
Reader = Callable[[object, str], Any]
"""Turns a value of the document into that of the dataclass; the text is the value's dotted field."""


class WrongField(ValueError):
    """A value that does not fit. ``field`` is its dotted name ('' for the whole)."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}" if field else message)
        self.field = field


@dataclass(frozen=True, slots=True)
class AtLeast:
    """A bound for a number; ``exclusive`` leaves the bound itself out. ``most`` ends what is counted."""

    bound: float
    exclusive: bool = False
    most: float = 2.0**53

    def holds(self, value: float) -> bool:
        return value <= self.most and (value > self.bound if self.exclusive else value >= self.bound)

    def __str__(self) -> str:
        return f"{'above' if self.exclusive else 'at least'} {self.bound:g}"


def build(cls: type[T], document: object, field: str = "") -> T:
    """``document`` as a ``cls``. Raises WrongField for a missing or unknown key, and for a wrong value."""
    read: Reader = _dataclass_reader(cls)  # type: ignore[arg-type]  # a class is hashable
    made: T = read(document, field)
    return made


@lru_cache
def _dataclass_reader(cls: Any) -> Reader:
    hints = get_type_hints(cls, include_extras=True)
    readers = {field.name: _reader(hints[field.name]) for field in fields(cls)}

    def read(document: object, where: str) -> Any:
        if not isinstance(document, Mapping):
            raise WrongField(where, f"expected the keys {', '.join(readers)}; got {_show(document)}")
        _check_keys(document, readers, where)
        return cls(
            **{name: read_one(document[name], _join(where, name)) for name, read_one in readers.items()}
        )

    return read


def _check_keys(document: Mapping[object, object], known: Mapping[str, Reader], where: str) -> None:
    for key in document:
        if key not in known:
            near = get_close_matches(str(key), known, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; known: {', '.join(known)}"
            raise WrongField(_join(where, clipped(str(key), 60)), f"unknown key{hint}")
    for name in known:
        if name not in document:
            raise WrongField(_join(where, name), "missing")


def _reader(hint: Any) -> Reader:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _bounded(_reader(arguments[0]), arguments[1])
    if origin in (Union, UnionType):
        (inner,) = (argument for argument in arguments if argument is not NoneType)
        return _optional(_reader(inner))
    if origin is Literal:
        return _one_of(arguments)
    if origin is tuple:
        return _sequence(_reader(arguments[0]))
    if is_dataclass(hint):
        return _dataclass_reader(hint)  # type: ignore[arg-type]
    return _PLAIN[hint]


def _bounded(read: Reader, bound: AtLeast) -> Reader:
    def checked(value: object, where: str) -> Any:
        number = read(value, where)
        if not bound.holds(number):
            expected = f"at most {bound.most:g}" if number > bound.most else str(bound)
            raise WrongField(where, f"must be {expected}, is {_show(number)}")
        return number

    return checked


def _optional(read: Reader) -> Reader:
    return lambda value, where: None if value is None else read(value, where)


def _one_of(known: tuple[object, ...]) -> Reader:
    def checked(value: object, where: str) -> object:
        if value not in known:
            raise WrongField(where, f"must be one of {', '.join(map(str, known))}; is {_show(value)}")
        return value

    return checked


def _sequence(read: Reader) -> Reader:
    def checked(value: object, where: str) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise WrongField(where, f"must be a list, is {_show(value)}")
        return tuple(read(item, f"{where}[{index}]") for index, item in enumerate(value))

    return checked


def _exactly(kind: type, name: str) -> Reader:
    def checked(value: object, where: str) -> object:
        if type(value) is not kind:  # bool is an int to isinstance
            raise WrongField(where, f"must be {name}, is {_show(value)}")
        return value

    return checked


def _number(value: object, where: str) -> float:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value).bit_length() <= 1000:
        value = float(value)
    if not isinstance(value, float) or not math.isfinite(value):
        raise WrongField(where, f"must be a number, is {_show(value)}")
    return value


_PLAIN: dict[Any, Reader] = {
    int: _exactly(int, "a whole number"),
    bool: _exactly(bool, "true or false"),
    str: _exactly(str, "text"),
    float: _number,
    object: lambda value, where: value,
}


def _join(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name
