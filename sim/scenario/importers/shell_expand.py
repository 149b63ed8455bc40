"""What a word of a shell script becomes when its variables are put in (bash manual, section 3.5).

Nothing is executed: a command in ``$( )`` and a variable that nobody sets leave a mark with their name in the
text (settings.py, UNKNOWN). Arithmetic is computed where all its numbers are known.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .settings import CLOSE, OPEN, UNKNOWN
from .shell_words import ShellError
from .shell_yq import answered, asks_yq

Value = str | list[str]

LONGEST = 200_000
"""Characters of one word: scripts that double a variable in turn would fill any memory."""

_NAME = re.compile(r"[A-Za-z_]\w*|[0-9]+|[@*#?$!-]")
_OPERATORS: Mapping[type, Callable[[int, int], int]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: int(a / b) if abs(a) < 2**52 else a // b,
    ast.Mod: lambda a, b: a - b * int(a / b) if abs(a) < 2**52 else a % b,
    ast.Eq: lambda a, b: int(a == b),
    ast.NotEq: lambda a, b: int(a != b),
    ast.Lt: lambda a, b: int(a < b),
    ast.LtE: lambda a, b: int(a <= b),
    ast.Gt: lambda a, b: int(a > b),
    ast.GtE: lambda a, b: int(a >= b),
}
_LARGEST = 2**63


_DOCUMENT = re.compile(r"\s*cat\s*<<-?\s*(['\"]?)(\w+)\1\n(.*)\n\s*\2\s*", re.DOTALL)
"""``$(cat <<EOF ...)``: a text of several lines in place of a word."""


def unknown(name: str) -> str:
    """The mark of a value that nobody knows."""
    return f"{OPEN}{name[:60]}{CLOSE}"


def is_known(text: str) -> bool:
    """Whether no part of the text is open."""
    return OPEN not in text


def arithmetic(text: str) -> str | None:
    """The value of an arithmetic expression without variables; None where it is none."""
    plain = text.strip().replace("/", "//").replace("////", "//").replace("&&", " and ").replace("||", " or ")
    if len(plain) > 500 or "**" in plain:
        return None
    try:
        return str(_computed(ast.parse(plain or "0", mode="eval").body))
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return None


def _computed(node: ast.AST) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int and abs(node.value) < _LARGEST:
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_computed(node.operand)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return int(not _computed(node.operand))
    if isinstance(node, ast.BoolOp):
        values = [bool(_computed(value)) for value in node.values]
        return int(all(values) if isinstance(node.op, ast.And) else any(values))
    if isinstance(node, ast.BinOp) and (made := _OPERATORS.get(type(node.op))):
        value = made(_computed(node.left), _computed(node.right))
    elif isinstance(node, ast.Compare) and (made := _OPERATORS.get(type(node.ops[0]))):
        value = made(_computed(node.left), _computed(node.comparators[0]))
    elif isinstance(node, ast.IfExp):
        value = _computed(node.body if _computed(node.test) else node.orelse)
    else:
        raise ValueError
    if abs(value) >= _LARGEST:
        raise ValueError
    return value


@dataclass(kw_only=True)
class Variables:
    """What a script has set, over what a user gives, which nothing in the script changes."""

    given: Mapping[str, str]
    found: dict[str, Value] = field(default_factory=dict)
    positional: tuple[str, ...] = ()
    used: set[str] = field(default_factory=set)
    depth: int = 0
    references: dict[str, str] = field(default_factory=dict)
    """Names that stand for another variable (``declare -n``)."""
    documents: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """YAML files that the script may ask for its options, by name."""
    read: set[str] = field(default_factory=set)
    """Questions to yq that were answered."""

    def set(self, name: str, value: Value) -> None:
        """Assign, unless the user gives that name."""
        if name in self.given:
            self.used.add(name)
        else:
            self.found[name] = value

    def get(self, name: str) -> Value | None:
        """The value; None where nobody sets it."""
        if name in self.given:
            self.used.add(name)
            return self.given[name]
        if name.isdigit() and 0 < int(name[:4]) <= len(self.positional):
            return self.positional[int(name[:4]) - 1]
        return self.found.get(self.references.get(name, name))

    def is_set(self, raw: str) -> bool:
        """Whether somebody sets the variable, or the entry of an array, that a word names."""
        found = re.fullmatch(r"([A-Za-z_]\w*)(?:\[(.*)\])?", raw)
        if found is None:
            return False
        return (
            self.get(found[1]) is not None
            if found[2] is None
            else self.entry(found[1], found[2]) in self.found
        )

    def entry(self, name: str, index: str) -> str:
        """The name under which an entry of an associative array stands."""
        return f"{self.references.get(name, name)}[{self.one(index)}]"

    def text(self, name: str) -> str | None:
        """The value as one text: an array's first element."""
        value = self.get(name)
        return (value[0] if value else "") if isinstance(value, list) else value

    def words(self, raw: str) -> list[str]:
        """The words that one word of a script becomes: what stands in no quotes is cut at blanks."""
        parts = self._parts(raw)
        words: list[str] = []
        current, has = "", False
        for text, quoted in parts:
            if quoted:
                current, has = current + text, True
                continue
            if text == BREAK:
                if has or current:
                    words.append(current)
                current, has = "", False
                continue
            for number, piece in enumerate(_cut_at_blanks(text)):
                if number and (current or has):
                    words.append(current)
                    current, has = "", False
                current += piece
        if current or has:
            words.append(current)
        if sum(map(len, words)) > LONGEST:
            raise ShellError("a word becomes longer than any command line", 0)
        return words

    def one(self, raw: str) -> str:
        """The word as one text, as in an assignment."""
        text = " ".join(
            text for text, _ in [("".join(" " if t == BREAK else t for t, _ in self._parts(raw)), 0)]
        )
        if len(text) > LONGEST:
            raise ShellError("a value becomes longer than any command line", 0)
        return text

    def _parts(self, raw: str) -> list[tuple[str, bool]]:
        """Pieces of text, and whether each stood in quotes."""
        self.depth += 1
        if self.depth > 40:
            raise ShellError("expansions are nested more than 40 deep", 0)
        parts: list[tuple[str, bool]] = []
        at = 0
        while at < len(raw):
            at = self._piece(raw, at, parts)
        self.depth -= 1
        return parts

    def _piece(self, raw: str, at: int, parts: list[tuple[str, bool]]) -> int:
        letter = raw[at]
        if letter == "\\":
            if raw[at + 1 : at + 2] != "\n":
                parts.append((raw[at + 1 : at + 2], True))
            return at + 2
        if letter == "'":
            end = raw.find("'", at + 1)
            end = len(raw) if end < 0 else end
            parts.append((raw[at + 1 : end], True))
            return end + 1
        if letter == '"':
            return self._double(raw, at, parts)
        if letter in "$`":
            text, end = self._expansion(raw, at)
            for number, item in enumerate(text if isinstance(text, list) else [text]):
                if number:
                    parts.append((BREAK, False))
                parts.append((item, isinstance(text, list) and raw.endswith('"')))
            return end
        end = at + 1
        while end < len(raw) and raw[end] not in "\\'\"$`":
            end += 1
        parts.append((raw[at:end], True) if not raw[at:end].isspace() else (raw[at:end], False))
        return end

    def _double(self, raw: str, at: int, parts: list[tuple[str, bool]]) -> int:
        text, end = "", at + 1
        parts.append(("", True))
        while end < len(raw) and raw[end] != '"':
            if raw[end] == "\\" and raw[end + 1 : end + 2] in ("\\", '"', "$", "`", "\n"):
                text += "" if raw[end + 1] == "\n" else raw[end + 1]
                end += 2
            elif raw[end] in "$`":
                value, end = self._expansion(raw, end)
                if isinstance(value, list):
                    for number, item in enumerate(value):
                        if number:
                            parts.append((text, True))
                            parts.append((BREAK, False))
                            text = ""
                        text += item
                    if not value and not text and raw[end : end + 1] == '"' and raw[at + 1] == "$":
                        parts.pop()
                        return end + 1
                else:
                    text += value
            else:
                text += raw[end]
                end += 1
        parts.append((text, True))
        return end + 1

    def _expansion(self, raw: str, at: int) -> tuple[Value, int]:
        """What ``$...`` or a backquote at ``at`` becomes, and where it ends."""
        if raw[at] == "`":
            end = raw.find("`", at + 1)
            end = len(raw) if end < 0 else end
            return self._command(raw[at + 1 : end]), end + 1
        if raw.startswith("$((", at):
            inside, end = _closed(raw, at + 1, "(", ")")
            return self._number(inside[1:-1]), end
        if raw.startswith("$[", at):  # as $(( )), in scripts of long ago
            inside, end = _closed(raw, at + 1, "[", "]")
            return self._number(inside), end
        if raw.startswith("$(", at):
            inside, end = _closed(raw, at + 1, "(", ")")
            return self._command(inside), end
        if raw.startswith("${", at):
            inside, end = _closed(raw, at + 1, "{", "}")
            return self._braced(inside), end
        name = _NAME.match(raw, at + 1)
        if name is None:
            return "$", at + 1
        # $10 is $1 and a 0 (bash manual 3.4.1).
        plain = name[0][0] if name[0][0].isdigit() else name[0]
        return self._plain(plain), at + 1 + len(plain)

    def _plain(self, name: str) -> Value:
        if name in "@*":
            return list(self.positional)
        if name == "#":
            return str(max([len(self.positional), *(int(one) for one in self.given if one.isdigit())]))
        if not name.isdigit() and not (name[0].isalpha() or name[0] == "_"):
            return unknown(f"${name}")
        value = self.text(name)
        return unknown(name) if value is None else value

    def _braced(self, inside: str) -> Value:
        if inside.startswith("#"):
            value = self.get(inside[1:].removesuffix("[@]").removesuffix("[*]"))
            return str(len(value)) if value is not None else unknown(inside[1:])
        match = re.match(r"([A-Za-z_]\w*|[0-9]+|[@*])(\[([^\]]*)\])?", inside)
        if match is None:
            return unknown(inside.lstrip("!"))
        name, index, rest = match[1], match[3], inside[match.end() :]
        if name in "@*" or index in ("@", "*"):
            value = list(self.positional) if name in "@*" else self.get(name)
            if value is None:
                return [self.one(rest[2:])] if rest.startswith(":-") and rest[2:] else []
            return [value] if isinstance(value, str) else list(value)
        text = self.text(name) if not index else self._item(name, index)
        return self._with_default(name, text, rest)

    def _item(self, name: str, index: str) -> str | None:
        if isinstance(named := self.found.get(self.entry(name, index)), str):
            return named
        value, place = self.get(name), self._number(index)
        items = [value] if isinstance(value, str) else value
        if items is None or not re.fullmatch(r"[0-9]{1,5}", place):
            return None
        return items[int(place)] if int(place) < len(items) else None

    def _with_default(self, name: str, text: str | None, rest: str) -> str:
        """``${X:-default}`` and its kin; a form that is not known leaves the value open."""
        if not rest:
            return unknown(name) if text is None else text
        form = re.match(r":?[-=?+]", rest)
        if form:
            empty = text is None or (form[0].startswith(":") and text == "")
            other = rest[form.end() :]
            match form[0][-1]:
                case "+":
                    return "" if empty else self.one(other)
                case "?":
                    return unknown(name) if empty else str(text)
                case "=" if empty:
                    self.set(name, self.one(other))
            return self.one(other) if empty else str(text)
        if text is None:
            return unknown(name)
        if rest in (",,", "^^"):
            return text.lower() if rest == ",," else text.upper()
        return text if not is_known(text) else _trimmed(text, rest) or unknown(name)

    def _number(self, inside: str) -> str:
        """Arithmetic: names in it are variables, with a dollar sign or without."""
        text = self.one(inside)
        for name in set(re.findall(r"[A-Za-z_]\w*", UNKNOWN.sub("", text))):
            value = self.text(name)
            text = re.sub(rf"\b{name}\b", unknown(name) if value is None else f"({value})", text)
        open_names = UNKNOWN.findall(text)
        if open_names:
            return "".join(map(unknown, dict.fromkeys(open_names)))
        value = arithmetic(text)
        return unknown(f"$(({text}))") if value is None else value

    def _command(self, inside: str) -> str:
        """A command in place of a word: ``expr`` and ``echo`` are read, all others stay open."""
        if computed := re.match(r"\s*expr\s+(.*)", inside, re.DOTALL):
            return self._number(computed[1].replace("\\*", "*"))
        if asks_yq(inside):
            found = answered(
                self.one(f'"{inside}"') if "'" not in inside else inside, self.documents, self._put_in
            )
            if found is not None:
                self.read.add(inside)
                return found
        if echoed := re.fullmatch(r"\s*echo\s+([^|;&]*?)(\|\s*bc\s*(-l)?\s*)?", inside, re.DOTALL):
            return self._number(echoed[1].replace('"', "")) if echoed[2] else " ".join(self.words(echoed[1]))
        if document := _DOCUMENT.fullmatch(inside):
            return document[3] if document[1] else self._put_in(document[3])
        return unknown(f"$({' '.join(inside.split())})")

    def _put_in(self, text: str) -> str:
        """A text with its variables put in, as envsubst does; what nobody sets stays open."""
        return self.one('"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"') if "$" in text else text


BREAK = "\ue002"
"""Between the elements of an array, where words end whatever they hold."""


def _cut_at_blanks(text: str) -> list[str]:
    """The pieces between blanks; what stands in for an open value is one, whatever it is called."""
    whole = UNKNOWN.sub(lambda mark: mark[0].replace(" ", _BLANK), text)
    return [piece.replace(_BLANK, " ") for piece in re.split(r"[ \t\n]+", whole)]


_BLANK = "\ue003"


def _closed(raw: str, at: int, opening: str, closing: str) -> tuple[str, int]:
    """What stands in the bracket that opens at ``at``, and where it ends."""
    depth, end = 0, at
    while end < len(raw):
        depth += (raw[end] == opening) - (raw[end] == closing)
        end += 1
        if depth == 0:
            return raw[at + 1 : end - 1], end
    return raw[at + 1 :], len(raw)


def _trimmed(text: str, rest: str) -> str | None:
    """``${X%suffix}``, ``${X##prefix}``, ``${X/old/new}``; None for forms that are not known."""
    if swap := re.fullmatch(r"(//?)([^/*?\[]+)/([^/]*)", rest):
        return text.replace(swap[2], swap[3], -1 if swap[1] == "//" else 1)
    if not (cut := re.fullmatch(r"(%%?|##?)(\*?)([^*?\[\]]*)(\*?)", rest)):
        return None
    sign, before, middle, after = cut.groups()
    if sign[0] == "%" and not before and after and middle in text:
        return text[: text.index(middle) if len(sign) == 2 else text.rindex(middle)]
    if sign[0] == "#" and before and not after and middle in text:
        place = text.rindex(middle) if len(sign) == 2 else text.index(middle)
        return text[place + len(middle) :]
    if not before and not after:
        return text.removesuffix(middle) if sign[0] == "%" else text.removeprefix(middle)
    return None
