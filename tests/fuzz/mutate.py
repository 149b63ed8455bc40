"""Documents and bytes made wrong: by a seeded chance, one to a few changes at a time.

Knows values that programs stumble over and how to put them into a document or a text. Does not know what the
document means.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from random import Random
from typing import Any

ODD: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 3, 7, -5, 0.5, 1.5, 1e-308, 1e-9, 1e9, 1e15, 1e18, 2**31, 2**63,
    2**64, 10**30,
    1e308, -1e308, float("inf"), float("-inf"), float("nan"), "", " ", "0", "-1", "1e400", "nan",
    "inf", ".inf",
    "1 s", "-1 s", "1e40 s", "1e-20 s", "1e300 GB/s", "0 GB", "5 %", "1 d", "1e9 d", "400 Gb/s",
    "none", "null", "true",
    "[/b]", "[red]x[/red]", "\x1b[31mred\x1b[0m", "\x00", "\ud7ff\u202e", "é" * 50, "x" * 5000,
    "../..", "/etc/passwd",
    "/dev/null", "a.b", "{}", "[]", "<svg>&", "'\"", "%s%n{0}", [], {}, [[]], {"a": {}}, [None], [1,
    -1], [[1, -500]],
    {"": None}, [0] * 300, "2F0", "gpu/0", "node/1", "H100", "all_reduce",
)  # fmt: skip
"""Values of every type, at the ends of their ranges and past them."""


def mutated_document(document: Any, rng: Random, others: tuple[Any, ...] = ()) -> Any:
    """A copy of ``document`` with one to four of its nodes changed; ``others`` are more values to put in."""
    found = copy.deepcopy(document)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        places = list(_places(found))
        if not places:
            return rng.choice(ODD)
        holder, key = rng.choice(places)
        _change(holder, key, rng, others)
    return found


def _change(holder: Any, key: Any, rng: Random, others: tuple[Any, ...]) -> None:
    value = holder[key]
    if isinstance(value, int | float) and not isinstance(value, bool) and rng.random() < 0.4:
        holder[key] = _near(value, rng)
        return
    match rng.randrange(9):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, dict):
            holder[rng.choice(("x", "", "extends", "name", "[/b]", str(key) + "s", str(key).upper()))] = value
        case 1:
            holder.extend([copy.deepcopy(value)] * rng.choice((1, 2, 50)))
        case 2:
            holder[key] = _deep(value, rng.choice((1, 2, 66, 100)))
        case 3 if isinstance(value, str):
            holder[key] = mutated_text(value, rng)
        case 4 | 5 if others:
            holder[key] = copy.deepcopy(rng.choice(others))
        case _:
            holder[key] = copy.deepcopy(rng.choice(ODD))


def _near(value: float, rng: Random) -> float:
    factor = rng.choice((0, -1, 2, 0.5, 10, 1e3, 1e6, 1e-6, 1.0001))
    return type(value)(value * factor + rng.choice((0, 0, 1, -1))) if abs(value) < 1e15 else -value


def _deep(value: Any, levels: int) -> Any:
    for _ in range(levels):
        value = [value]
    return value


def _places(node: Any) -> Iterator[tuple[Any, Any]]:
    """Every holder and key of a document."""
    inside = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in inside:
        yield node, key
        yield from _places(value)


def mutated_text(text: str, rng: Random) -> str:
    """``text`` with a word, a line or a letter changed."""
    lines = text.split("\n")
    at = rng.randrange(len(lines))
    match rng.randrange(8):
        case 0:
            del lines[at]
        case 1:
            lines.insert(at, rng.choice(lines))
        case 2:
            lines[at] = str(rng.choice(ODD))
        case 3:
            lines = lines[:at]
        case 4:
            words = lines[at].replace(",", " , ").split(" ")
            words[rng.randrange(len(words))] = str(rng.choice(ODD))
            lines[at] = " ".join(words)
        case 5:
            lines[at] *= rng.choice((2, 100))
        case 6:
            swap = rng.randrange(len(lines))
            lines[at], lines[swap] = lines[swap], lines[at]
        case _:
            cut = rng.randrange(len(lines[at]) + 1)
            lines[at] = (
                lines[at][:cut]
                + rng.choice(("\t", ":", "[", "{", "&a *a", "#", "\x00", "-", "9" * 40))
                + lines[at][cut:]
            )
    return "\n".join(lines)


def mutated_bytes(content: bytes, rng: Random) -> bytes:
    """``content`` with some of its bytes changed, cut, repeated, or replaced by what no reader expects."""
    found = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 8))):
        at = rng.randrange(len(found) + 1)
        match rng.randrange(7):
            case 0:
                del found[at:]
            case 1:
                del found[at : at + rng.choice((1, 4, 64))]
            case 2:
                found[at:at] = rng.randbytes(rng.choice((1, 4, 64)))
            case 3 if found:
                found[at % len(found)] ^= 1 << rng.randrange(8)
            case 4:
                found[at:at] = found[at : at + 64] * rng.choice((2, 50))
            case 5:
                found[at:at] = rng.choice(
                    (
                        b"[" * 3000,
                        b'{"a":' * 3000,
                        b"- " * 3000,
                        b"\xff\xfe",
                        b"\x00" * 16,
                        b"\x1f\x8b",
                        b"*a &a",
                    )
                )
            case _:
                found[at:at] = str(rng.choice(ODD)).encode("utf-8", errors="replace")
    return bytes(found)
