"""Values of Hydra and OmegaConf files that are put together from others: ``${.x}``, ``${multiply:4,${.x}}``.

Knows references and the resolvers that NeMo's files use; whatever else stays open under its own text.

Source: omegaconf.readthedocs.io custom_resolvers; NVIDIA/NeMo-Framework-Launcher launcher_scripts/main.py
(register_new_resolver: multiply, divide_ceil, divide_floor, ...).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from .settings import CLOSE, OPEN

_INNER = re.compile(r"\$\{([^${}]*)\}")
MOST = 200

_RESOLVERS: Mapping[str, Callable[[float, float], float]] = {
    "multiply": lambda a, b: a * b,
    "divide_ceil": lambda a, b: math.ceil(a / b),
    "divide_floor": lambda a, b: a // b,
    "sum": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "int_div": lambda a, b: a // b,
}


def resolved(document: Any, environment: Mapping[str, str] | None) -> Any:
    """The document with its references put in; a reference to nothing stays open, by its text."""
    return _walk(document, document, (), environment or {})


def _walk(value: Any, root: Any, path: tuple[str, ...], environment: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _walk(entry, root, (*path, key), environment) for key, entry in value.items()}
    if isinstance(value, list):
        return [_walk(entry, root, path, environment) for entry in value]
    if isinstance(value, str) and "${" in value:
        return _text(value, root, path, environment)
    return value


def _text(text: str, root: Any, path: tuple[str, ...], environment: Mapping[str, str]) -> Any:
    for _ in range(MOST):
        found = _INNER.search(text)
        if found is None:
            return text
        value = _value(found[1], root, path, environment)
        if found.span() == (0, len(text)):
            if not isinstance(value, str) or "${" not in value:
                return value
            text = value
        else:
            text = text[: found.start()] + str(value) + text[found.end() :]
        if len(text) > 10_000:
            break
    return f"{OPEN}{text[:40]}{CLOSE}"


def _value(inside: str, root: Any, path: tuple[str, ...], environment: Mapping[str, str]) -> Any:
    name, colon, rest = inside.partition(":")
    if colon and name in _RESOLVERS:
        numbers = [_number(one) for one in rest.split(",")]
        if len(numbers) == 2 and None not in numbers:
            try:
                made = _RESOLVERS[name](float(numbers[0] or 0), float(numbers[1] or 0))
            except (ZeroDivisionError, OverflowError):
                return f"{OPEN}{inside[:40]}{CLOSE}"
            return int(made) if math.isfinite(made) and made == int(made) else made
    if colon and name in ("oc.env", "env"):
        key, comma, default = rest.partition(",")
        if key.strip() in environment:
            return environment[key.strip()]
        return default.strip() if comma else f"{OPEN}{key.strip()}{CLOSE}"
    found = _referred(inside.strip(), root, path)
    return f"{OPEN}{inside[:40]}{CLOSE}" if found is None else found


def _number(text: str) -> float | None:
    plain = text.strip()
    return float(plain) if re.fullmatch(r"-?\d{1,18}(\.\d+)?", plain) else None


def _referred(name: str, root: Any, path: tuple[str, ...]) -> Any:
    """The value of ``.sibling``, ``..uncle.x``, ``a.b.c``; NeMo's launcher hangs the file below
    ``training``."""
    ups = len(name) - len(name.lstrip("."))
    keys = [key for key in name.lstrip(".").split(".") if key]
    starts = [path[: len(path) - ups]] if ups else [()]
    for start in starts:
        for way in (keys, keys[1:] if keys[:1] in (["training"], ["cfg"]) else keys):
            found = root
            for key in (*start, *way):
                found = found.get(key) if isinstance(found, dict) else None
            if found is not None and not isinstance(found, dict | list):
                return found
    return None
