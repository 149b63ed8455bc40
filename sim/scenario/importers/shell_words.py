"""Words of a shell script: quotes, comments, here-documents, arrays, as bash cuts them (bash manual, 3.1 and
3.5).

Knows how a text is cut, not what its commands do. Words keep their quotes; whoever runs over them expands
them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .settings import CLOSE, OPEN

_OPERATORS = (
    ";;",
    "&&",
    "||",
    "<<<",
    "<<-",
    "<<",
    ">>",
    "&>",
    ">&",
    "<&",
    ">|",
    ";",
    "|",
    "&",
    "(",
    ")",
    "<",
    ">",
)
_ARRAY = re.compile(r"[A-Za-z_]\w*\+?=\Z")
_HERE = ("<<", "<<-")


class ShellError(ValueError):
    """A script that cannot be read, with its line."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(f"line {line}: {message}")
        self.message, self.line = message, line


@dataclass(frozen=True, slots=True)
class Token:
    """``kind``: word, op, newline, array (``text`` is ``NAME=`` and ``items`` its words), here (a
    document)."""

    kind: str
    text: str
    line: int
    items: tuple[str, ...] = ()


def tokens(text: str) -> list[Token]:
    """The tokens of a script.

    Raises:
        ShellError: a quote or a bracket that does not end.
    """
    return _Cutter(text).all()


class _Cutter:
    def __init__(self, text: str) -> None:
        self.text, self.at, self.line = text, 0, 1
        self.found: list[Token] = []
        self.waiting: list[str] = []
        """Ends of here-documents that begin on the next line."""

    def all(self) -> list[Token]:
        while self.at < len(self.text):
            self._one()
        return self.found

    def _one(self) -> None:
        text, letter = self.text, self.text[self.at]
        if text.startswith("\\\n", self.at):
            self._skip(2)
        elif letter == "\n":
            self._add("newline", "\n")
            self._skip(1)
            self._documents()
        elif letter.isspace():
            self._skip(1)
        elif letter == "#":
            end = text.find("\n", self.at)
            self._skip((len(text) if end < 0 else end) - self.at)
        elif text.startswith("((", self.at) and self._begins_command():
            inside = self._balanced(self.at, "(", ")")
            self._add("word", inside)
            self._skip(len(inside))
        else:
            operator = next((one for one in _OPERATORS if text.startswith(one, self.at)), None)
            if operator and not text.startswith(("<(", ">("), self.at):
                self._operator(operator)
            else:
                self._word()

    def _begins_command(self) -> bool:
        last = self.found[-1] if self.found else None
        return (
            last is None
            or last.kind in ("newline", "op")
            or last.text in ("if", "while", "for", "then", "do", "elif")
        )

    def _operator(self, operator: str) -> None:
        self._add("op", operator)
        self._skip(len(operator))
        if operator in _HERE:
            while self.at < len(self.text) and self.text[self.at] in " \t":
                self._skip(1)
            end = re.compile(r"[^\s;|&<>()]*").match(self.text, self.at)
            assert end is not None  # the pattern takes nothing, too
            self._add("word", end[0])
            self._skip(len(end[0]))
            self.waiting.append(end[0])

    def _documents(self) -> None:
        for end in self.waiting:
            plain, lines, begin = end.strip("'\"\\"), [], self.line
            while self.at < len(self.text):
                stop = self.text.find("\n", self.at)
                stop = len(self.text) if stop < 0 else stop
                line = self.text[self.at : stop]
                self._skip(stop + 1 - self.at)
                if line.strip() == plain:
                    break
                lines.append(line)
            quoted = "'" if plain != end else ""
            self.found.append(Token("here", "\n".join(lines), begin, (quoted,)))
        self.waiting = []

    def _word(self) -> None:
        begin, line = self.at, self.line
        while self.at < len(self.text):
            letter = self.text[self.at]
            if letter == "(" and _ARRAY.match(self.text[begin : self.at]):
                self._array(self.text[begin : self.at], line)
                return
            if letter == "(" and self.at > begin and self.text[self.at - 1] in "<>=@?*+!":
                self._skip(len(self._balanced(self.at, "(", ")")))
            elif letter.isspace() or letter in ";|&<>()":
                break
            else:
                self._skip(self._piece(self.at))
        if self.at == begin:
            self._skip(1)
        self.found.append(Token("word", self.text[begin : self.at], line))

    def _array(self, name: str, line: int) -> None:
        self._skip(1)
        items: list[str] = []
        while self.at < len(self.text) and self.text[self.at] != ")":
            letter = self.text[self.at]
            if letter.isspace():
                self._skip(1)
            elif letter == "#":
                end = self.text.find("\n", self.at)
                self._skip((len(self.text) if end < 0 else end) - self.at)
            elif self.text.startswith("\\\n", self.at):
                self._skip(2)
            else:
                begin = self.at
                while (
                    self.at < len(self.text)
                    and not self.text[self.at].isspace()
                    and self.text[self.at] != ")"
                ):
                    self._skip(self._piece(self.at))
                items.append(self.text[begin : self.at])
        if self.at >= len(self.text):
            raise ShellError("this list in brackets does not end", line)
        self._skip(1)
        self.found.append(Token("array", name, line, tuple(items)))

    def _piece(self, at: int) -> int:
        """Characters of the quote, the expansion or the letter that begins at ``at``."""
        text = self.text
        letter = text[at]
        if letter == "\\":
            return 2
        if letter == OPEN:  # the name of what is open may be cut off, and is no shell's text
            return max(1, text.find(CLOSE, at) + 1 - at)
        if letter == "'":
            end = text.find("'", at + 1)
            if end < 0:
                raise ShellError("a quote ' does not end", self.line)
            return end + 1 - at
        if letter == '"':
            return len(self._double(at))
        if letter == "`":
            end = text.find("`", at + 1)
            if end < 0:
                raise ShellError("a backquote does not end", self.line)
            return end + 1 - at
        if text.startswith("$[", at):
            return 1 + len(self._balanced(at + 1, "[", "]"))
        if text.startswith("$(", at):
            return 1 + len(self._balanced(at + 1, "(", ")"))
        if text.startswith("${", at):
            return 1 + len(self._balanced(at + 1, "{", "}"))
        return 1

    def _double(self, at: int) -> str:
        end = at + 1
        while end < len(self.text) and self.text[end] != '"':
            end += self._piece(end) if self.text[end] in f"\\$`{OPEN}" else 1
        if end >= len(self.text):
            raise ShellError('a quote " does not end', self.line)
        return self.text[at : end + 1]

    def _balanced(self, at: int, opening: str, closing: str) -> str:
        depth, end = 0, at
        while end < len(self.text):
            letter = self.text[end]
            if letter == OPEN:
                end += self._piece(end)
                continue
            if letter in "\\'\"" and not (letter == "'" and closing == "}" and depth):
                end += self._quoted(end)
                continue
            depth += (letter == opening) - (letter == closing)
            end += 1
            if depth == 0:
                return self.text[at:end]
        raise ShellError(f"a bracket {opening} does not end", self.line)

    def _quoted(self, at: int) -> int:
        """As ``_piece`` of a quote, without looking into it: brackets in brackets must not cost ever more."""
        letter = self.text[at]
        if letter == "\\":
            return 2
        end = at + 1
        while end < len(self.text) and self.text[end] != letter:
            end += 2 if self.text[end] == "\\" and letter == '"' else 1
        return end + 1 - at

    def _add(self, kind: str, text: str) -> None:
        self.found.append(Token(kind, text, self.line))

    def _skip(self, count: int) -> None:
        self.line += self.text.count("\n", self.at, self.at + count)
        self.at += max(1, count)


BLOCK_ENDS = {"fi", "done", "esac", "}", "else", "elif", "then", "do", ";;"}
"""Words behind which a command begins, as at the start of a line."""

BLOCKS: Mapping[str, str] = {
    "if": "fi",
    "case": "esac",
    "for": "done",
    "while": "done",
    "until": "done",
    "select": "done",
    "{": "}",
}
"""The word that ends each kind of block."""


def block_end(cut: Sequence[Token], at: int, ends: set[str], opens: Mapping[str, str] = BLOCKS) -> int:
    """Where the word among ``ends`` stands that ends a block, past blocks inside it; its length if none
    does."""
    stack: list[str] = []
    while at < len(cut):
        text = cut[at].text if cut[at].kind in ("word", "op") else ""
        starts = (
            at == 0
            or cut[at - 1].kind in ("newline", "op")
            or cut[at - 1].text in BLOCK_ENDS | {"{", "!", "if", "while"}
        )
        if starts or text == ";;":
            if not stack and text in ends:
                return at
            if stack and text == stack[-1]:
                stack.pop()
            elif text in opens:
                stack.append(opens[text])
        at += 1
    return at
