"""Files that are small on disk and large, deep or endless to a careless reader.

Knows formats. Does not know which of them a command reads: each must end every command in a message.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping
from functools import cache


def _laughs() -> bytes:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    return "\n".join(lines).encode()


def _entities() -> bytes:
    """XML whose entities hold ten of the one before."""
    defined = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 9))
    text = f'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY e0 "aaaaaaaaaa">{defined}]><graphml>&e8;</graphml>'
    return text.encode()


HOSTILE: Mapping[str, Callable[[], bytes]] = {
    "nothing": lambda: b"",
    "one blank": lambda: b"\n",
    "a mark": lambda: b"\xef\xbb\xbf",
    "not UTF-8": lambda: b"\xff\xfe\x00a",
    "zeros": lambda: b"\x00" * 10_000,
    "brackets": lambda: b"[" * 100_000,
    "braces": lambda: b"{a: " * 50_000,
    "objects": lambda: b'{"a":' * 100_000,
    "brackets closed": lambda: b"[" * 5_000 + b"]" * 5_000,
    "dashes": lambda: b"- " * 50_000,
    "indents": lambda: b"\n".join(b" " * n + b"a:" for n in range(2_000)),
    "its own alias": lambda: b"a: &a [*a]\n",
    "its own alias at the top": lambda: b"&a [*a]\n",
    "aliases of aliases": _laughs,
    "merges": lambda: b"a: &a {x: 1}\nb: &b {<<: [*a, *a, *a]}\nc: {<<: [*b, *b, *b]}\n",
    "many keys": lambda: b"\n".join(b"k%d: 1" % n for n in range(200_000)),
    "many keys inside": lambda: b"model:\n" + b"\n".join(b"  k%d: 1" % n for n in range(200_000)),
    "a long list": lambda: b"[" + b"1," * 2_000_000 + b"1]",
    "a long line": lambda: b"x" * 5_000_000,
    "a long number": lambda: b"a: " + b"9" * 1_000_000,
    "many digits": lambda: b"[1e" + b"9" * 100_000 + b"]",
    "a packed bomb": lambda: gzip.compress(b"\x00" * 600_000_000, compresslevel=1),
    "a packed list": lambda: gzip.compress(b"[" + b"1," * 20_000_000 + b"1]", compresslevel=1),
    "a packed half": lambda: gzip.compress(b"[1, 2]" * 1000)[:40],
    "a tag": lambda: b"a: !!python/object/apply:os.system [ls]\n",
    "two documents": lambda: b"a: 1\n---\nb: 2\n",
    "a list at the top": lambda: b"- 1\n- 2\n",
    "keys that are lists": lambda: b"? [a, b]\n: 1\n",
    "keys given twice": lambda: b"model: a\nmodel: b\n",
    "escapes": lambda: b'model: "\\e[31mred\\e[0m [/b] [red]x[/red]"\ntitle: "[/b]\\e]0;x\\a"\n',
    "entities": _entities,
    "commas": lambda: b"," * 1_000_000,
    "lines": lambda: b"\n" * 2_000_000,
    "a quote": lambda: b'a,b\n"' + b"x" * 200_000,
}
"""What a file holds, by what it is."""


@cache
def hostile_content(name: str) -> bytes:
    """The hostile content of that name, made once."""
    return HOSTILE[name]()
