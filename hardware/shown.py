r"""A user's text as messages and pictures show it: not too long, and with nothing that steers a terminal.

Knows characters. Does not know what the text says.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

MOST = 300
"""Characters of a user's value in a message; a few lines of a terminal."""

_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
"""C0 and C1 but tab and line feed, what reorders or breaks lines, and what XML 1.0 has no character for."""


def clipped(text: str, most: int = MOST) -> str:
    """``text``, or its beginning and how many characters were left out.

    >>> clipped("abcdefgh", 5)
    'abcde... (3 more characters)'
    """
    return text if len(text) <= most else f"{text[:most]}... ({len(text) - most:,} more characters)"


def window(line: str, column: int, most: int = 160) -> tuple[str, int]:
    """The part of a long line around ``column`` (from 1), and the column there.

    >>> window("abcdef", 5)
    ('abcdef', 5)
    >>> window("x" * 500, 400, 20)
    ('...xxxxxxxxxxxxxxxxxxxx...', 14)
    """
    if len(line) <= most:
        return line, column
    begin = max(0, min(column - 1 - most // 2, len(line) - most))
    head, tail = "..." if begin else "", "..." if begin + most < len(line) else ""
    return f"{head}{line[begin : begin + most]}{tail}", column - begin + len(head)


def printable(text: str) -> str:
    r"""``text`` with control characters as escapes; tabs and line feeds stay.

    >>> printable("\x1b[31mred\x07")
    '\\x1b[31mred\\x07'
    """
    return _CONTROLS.sub(_escape, text)


def printable_line(text: str) -> str:
    r"""``printable`` text for one line: tabs and line feeds are escaped too."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")


def listed(problems: Sequence[str], most: int = 20) -> str:
    """A line for each problem, of the first of them.

    >>> listed(["a", "b", "c"], 2)
    'a\\nb\\nand 1 more'
    """
    more = [f"and {len(problems) - most:,} more"] if len(problems) > most else []
    return "\n".join([*problems[:most], *more])


def value_text(value: object, most: int = 60) -> str:
    """A value of a document as an error names it: its beginning where it is long.

    >>> value_text("a"), value_text(None), value_text([1] * 99, 12)
    ("'a'", 'null', '[1, 1, 1, 1,...')
    """
    if value is None:
        return "null"
    if isinstance(value, int) and abs(value).bit_length() > 200:  # Python prints no number of 5,000 digits
        return f"a number of {abs(value).bit_length()} bits"
    if isinstance(value, str | bytes):
        text = repr(value[: most + 1])
    else:
        try:
            text = repr(value)
        except ValueError:  # of such a number within
            text = f"a {type(value).__name__}"
    return text if len(text) <= most else text[:most].rstrip() + "..."
