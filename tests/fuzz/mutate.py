"""Sound documents and files made a little wrong, the same way for the same seed.

Documents are what JSON and YAML hold: dicts, lists, text, numbers, booleans, null. Import it as
``from fuzz.mutate import ...``: tests/ is on the path, and a file must not be loaded under two names.

``replacements`` and ``deletions`` go through every place of a document; ``mutated`` and ``mutated_bytes``
draw from ``random.Random``; ``documents`` and ``contents`` are the same as strategies of hypothesis. Nothing
here knows what a document means.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

from hypothesis import strategies as st

ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, -5, 1.5, 4096.5, 2**31, 2**63, 10**30, 1e300, 5e-324,
    math.inf, -math.inf, math.nan, "", " ", "x", "nan", "1e400", "-1", "0", "1 s",
    "[red]x", "\x1b[31m", "\0", "é" * 3, "x" * 500,
    [], [None], [[]], [1, "x"], {}, {"x": None}, {"id": []},
)  # fmt: skip
"""What stands where something else must: every type, both signs, the ends of ranges, text that steers."""

FEW: tuple[Any, ...] = (None, True, 0, -1, 1.5, 2**63, math.inf, math.nan, "x", "", [], [[1]], {"x": 1})
"""One of each kind, for laws over every place of a large document."""

Path = tuple[str | int, ...]


def places(document: Any, at: Path = ()) -> Iterator[Path]:
    """The path of every node, the whole document first.

    >>> list(places({"a": [1]}))
    [(), ('a',), ('a', 0)]
    """
    yield at
    if isinstance(document, dict | list):
        for key, inner in list(document.items() if isinstance(document, dict) else enumerate(document)):
            yield from places(inner, (*at, key))


def node_at(document: Any, path: Path) -> Any:
    """The node at ``path``."""
    for key in path:
        document = document[key]
    return document


def replaced(document: Any, path: Path, value: Any) -> Any:
    """A copy of ``document`` with ``value`` at ``path``.

    >>> replaced({"a": [1, 2]}, ("a", 0), None)
    {'a': [None, 2]}
    """
    if not path:
        return copy.deepcopy(value)
    document = copy.deepcopy(document)
    node_at(document, path[:-1])[path[-1]] = copy.deepcopy(value)
    return document


def without(document: Any, path: Path) -> Any:
    """A copy of ``document`` without the entry at ``path``, which is not the whole.

    >>> without({"a": 1, "b": 2}, ("a",))
    {'b': 2}
    """
    document = copy.deepcopy(document)
    del node_at(document, path[:-1])[path[-1]]
    return document


def doubled(document: Any, path: Path) -> Any:
    """A copy with the entry at ``path`` a second time: next to it in a list, under a new key in a mapping.

    >>> doubled({"a": [1]}, ("a", 0)), doubled({"a": 1}, ("a",))
    ({'a': [1, 1]}, {'a': 1, 'a_again': 1})
    """
    document = copy.deepcopy(document)
    parent, last = node_at(document, path[:-1]), path[-1]
    again = copy.deepcopy(parent[last])
    if isinstance(parent, list):
        parent.insert(int(last), again)
    else:
        parent[f"{last}_again"] = again
    return document


def deepened(document: Any, path: Path, levels: int) -> Any:
    """A copy with the node at ``path`` inside ``levels`` lists.

    >>> deepened({"a": 1}, ("a",), 2)
    {'a': [[1]]}
    """
    inner = copy.deepcopy(node_at(document, path))
    for _ in range(levels):
        inner = [inner]
    return replaced(document, path, inner)


def replacements(document: Any, values: Sequence[Any] = FEW) -> Iterator[tuple[Path, Any, Any]]:
    """(path, value, document) for every node and every value: the whole of one-place mistakes."""
    for path in places(document):
        for value in values:
            yield path, value, replaced(document, path, value)


def deletions(document: Any) -> Iterator[tuple[Path, Any]]:
    """(path, document) for every entry that can be missing."""
    for path in places(document):
        if path:
            yield path, without(document, path)


def mutated(document: Any, random: Random, times: int = 1, values: Sequence[Any] = ()) -> Any:
    """``document`` after ``times`` random mistakes: a value replaced, an entry gone, doubled, or deeper.

    ``values`` are such as may stand somewhere in it, beside the odd ones.
    """
    for _ in range(times):
        every = list(places(document))
        path = random.choice(every)
        ways = ("replace", "replace", "swap", "delete", "double", "deepen", "near", "near", "value")
        way = random.choice(ways)
        if way == "swap":  # a value that stands elsewhere: right in type, wrong in place
            document = replaced(document, path, node_at(document, random.choice(every)))
        elif way == "near":
            document = replaced(document, path, _near(node_at(document, path), random))
        elif way == "value" and values:
            document = replaced(document, path, random.choice(values))
        elif way == "deepen":
            document = deepened(document, path, random.choice((1, 2, 70)))
        elif way in ("replace", "value") or not path:
            document = replaced(document, path, random.choice(ODD))
        else:
            document = without(document, path) if way == "delete" else doubled(document, path)
    return document


def _near(value: Any, random: Random) -> Any:
    """A number of the same type, or a text that begins or ends otherwise; else something odd."""
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e15:
        factor = random.choice((0, -1, 2, 0.5, 10, 1e3, 1e6, 1e-6, 1.0001))
        return type(value)(value * factor + random.choice((0, 0, 1, -1)))
    return mutated_text(value, random) if isinstance(value, str) else random.choice(ODD)


def mutated_text(text: str, random: Random) -> str:
    """``text`` with a line, a word or a letter changed."""
    lines = text.split("\n")
    at = random.randrange(len(lines))
    line, other = lines[at], random.randrange(len(lines))
    way = random.choice(("remove", "again", "odd", "cut", "word", "long", "swap", "letter"))
    if way == "remove":
        del lines[at]
    elif way == "again":
        lines.insert(at, lines[other])
    elif way == "odd":
        lines[at] = str(random.choice(ODD))
    elif way == "cut":
        del lines[at:]
    elif way == "word":
        words = line.replace(",", " , ").split(" ")
        words[random.randrange(len(words))] = str(random.choice(ODD))
        lines[at] = " ".join(words)
    elif way == "long":
        lines[at] = line * random.choice((2, 100))
    elif way == "swap":
        lines[at], lines[other] = lines[other], line
    else:
        place = random.randrange(len(line) + 1)
        letters = random.choice(("\t", ":", "[", "{", "&a *a", "#", "\0", "-", "9" * 40))
        lines[at] = line[:place] + letters + line[place:]
    return "\n".join(lines)


def mutated_bytes(content: bytes, random: Random, times: int = 1) -> bytes:
    """``content`` after ``times`` random mistakes: bytes flipped, cut off, repeated, put in or left out."""
    for _ in range(times):
        at = random.randrange(len(content) + 1)
        end = min(len(content), at + random.choice((1, 2, 16, 200)))
        piece = content[at:end]
        way = random.choice(("flip", "truncate", "repeat", "insert", "remove", "zero", "swap"))
        if way == "flip" and piece:
            content = content[:at] + bytes([piece[0] ^ (1 << random.randrange(8))]) + content[at + 1 :]
        elif way == "truncate":
            content = content[:at]
        elif way == "repeat":
            content = content[:end] + piece * random.choice((1, 3, 100)) + content[end:]
        elif way == "insert":
            content = content[:at] + random.choice(_PIECES) + content[at:]
        elif way == "remove":
            content = content[:at] + content[end:]
        elif way == "zero":
            content = content[:at] + b"\0" * len(piece) + content[end:]
        elif way == "swap" and content:
            other = random.randrange(len(content))
            content = content[:at] + content[other : other + len(piece)] + content[end:]
    return content


_PIECES = (
    b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\n", b"\r", b"{", b"}", b"[" * 100, b'"', b"'", b",", b":", b"-",
    b"NaN", b"1e400", b"9" * 400, b"&a *a", b"<!ENTITY", b"\x1b[31m", b"null", b" ", b"\t", b"#", b"\x1f\x8b",
)  # fmt: skip


def documents(document: Any, most: int = 4) -> st.SearchStrategy[Any]:
    """``document`` with one to ``most`` mistakes; an example is its seed, so that it can be drawn again."""
    return _seeded(lambda seed, times: mutated(document, Random(seed), times), most)


def contents(content: bytes, most: int = 4) -> st.SearchStrategy[bytes]:
    """``content`` with one to ``most`` mistakes in its bytes."""
    return _seeded(lambda seed, times: mutated_bytes(content, Random(seed), times), most)


def _seeded(make: Callable[[int, int], Any], most: int) -> st.SearchStrategy[Any]:
    return st.builds(make, st.integers(0, 2**32 - 1), st.integers(1, most))


def as_json(document: Any) -> bytes:
    """JSON as sloppy programs write it: NaN as it is, infinity as a number that no float64 holds.

    >>> as_json({"a": float("inf")})
    b'{"a": 1e400}'
    """
    return json.dumps(document).replace("-Infinity", "-1e400").replace("Infinity", "1e400").encode()


__all__ = [
    "FEW",
    "ODD",
    "Path",
    "as_json",
    "contents",
    "deepened",
    "deletions",
    "documents",
    "doubled",
    "mutated",
    "mutated_bytes",
    "mutated_text",
    "node_at",
    "places",
    "replaced",
    "replacements",
    "without",
]
