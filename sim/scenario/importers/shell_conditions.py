"""Conditions of a launch script: whether a test holds, where what it asks is known.

Knows ``[``, ``[[``, ``test`` and ``((``; runs no command, so that the outcome of one is unknown (None).
"""

from __future__ import annotations

import re

from .shell_expand import Variables, is_known
from .shell_words import Token


def holds(cut: list[Token], variables: Variables) -> bool | None:
    """Whether a condition holds; None where nobody knows."""
    value: bool | None = None
    joint, begin = "", 0
    flat = [one for one in cut if one.kind == "word" or one.text in ("&&", "||", ";")]
    inside = False
    for place in range(len(flat) + 1):
        if place < len(flat):
            inside = (inside or flat[place].text == "[[") and flat[place].text != "]]"
            if inside or flat[place].kind == "word":
                continue
        if place > begin:
            one = _test([token.text for token in flat[begin:place]], variables)
            value = one if joint in ("", ";") else _joined(joint, value, one)
        joint, begin = (flat[place].text if place < len(flat) else ""), place + 1
    return value


def _test(raw: list[str], variables: Variables) -> bool | None:
    if raw[:1] == ["!"]:
        inner = _test(raw[1:], variables)
        return None if inner is None else not inner
    if raw and raw[0].startswith("(("):
        value = variables.one(f"$({raw[0][1:-1]})")
        return value != "0" if is_known(value) else None
    if raw[:1] == ["true"] or raw[:1] == [":"]:
        return True
    if raw[:1] == ["false"]:
        return False
    if not raw or raw[0] not in ("[", "[[", "test"):
        return None
    words = [one for one in raw[1:] if one not in ("]", "]]")]
    if words[:1] == ["-v"] and len(words) == 2:
        return True if variables.is_set(words[1]) else None
    for joint in ("||", "-o", "&&", "-a"):
        if joint in words:
            place = words.index(joint)
            return _joined(
                "||" if joint in ("||", "-o") else "&&",
                _test([raw[0], *words[:place]], variables),
                _test([raw[0], *words[place + 1 :]], variables),
            )
    return _primary([_tested(one, variables) for one in words], words)


def _tested(raw: str, variables: Variables) -> str:
    """A word of a test: a variable that nobody sets is empty there, as in bash, but for arguments
    ($1)."""
    text = variables.one(raw)
    plain = re.fullmatch(r'"?\$\{?([A-Za-z_]\w*)(?::?-)?\}?"?', raw)
    return "" if plain and variables.get(plain[1]) is None else text


def _primary(words: list[str], raw: list[str]) -> bool | None:
    if words[:1] == ["!"]:
        inner = _primary(words[1:], raw[1:])
        return None if inner is None else not inner
    if len(words) == 1:
        return bool(words[0]) if is_known(words[0]) else None
    if len(words) == 2 and words[0] in ("-z", "-n"):
        if not is_known(words[1]):
            name = re.fullmatch(r'"?\$\{?([0-9]+)(?::?-)?\}?"?', raw[1])
            return None if name is None else words[0] == "-z"
        return (words[1] == "") == (words[0] == "-z")
    if len(words) == 3 and words[1] == "=~" and re.fullmatch(r"--[\w-]+", words[2]):
        return words[2] in words[0]  # an option's name stands in no variable that is open: paths, names
    if len(words) != 3 or not (is_known(words[0]) and is_known(words[2])):
        return None
    left, sign, right = words
    if sign in ("=", "=="):
        return matches(left, right)
    if sign == "!=":
        return not matches(left, right)
    if sign in _COMPARED and re.fullmatch(r"-?[0-9]{1,18}", left) and re.fullmatch(r"-?[0-9]{1,18}", right):
        return _COMPARED[sign](int(left), int(right))
    if sign == "=~" and re.fullmatch(r"[\w.-]+", right):
        return right in left
    return None


_COMPARED = {
    "-eq": int.__eq__, "-ne": int.__ne__, "-lt": int.__lt__, "-le": int.__le__, "-gt": int.__gt__,
    "-ge": int.__ge__,
}  # fmt: skip


def _joined(joint: str, left: bool | None, right: bool | None) -> bool | None:
    values = (left, right)
    if joint == "&&":
        return False if False in values else None if None in values else True
    return True if True in values else None if None in values else False


def matches(text: str, pattern: str) -> bool:
    """Whether ``text`` matches a shell's pattern, of which * and ? alone are known."""
    wanted = "".join(".*" if one == "*" else "." if one == "?" else re.escape(one) for one in pattern)
    return re.fullmatch(re.sub(r"(\.\*)+", ".*", wanted), text, re.DOTALL) is not None
