"""A launch script, read and never executed: what it sets, and the command that it would start.

Assignments, arrays, here-documents, if, case, for and functions are followed as bash would (bash manual,
chapter 3). Where a condition depends on what nobody knows, both ways are walked, and a variable that they
leave different stays open under its own name, to be asked for where it matters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .settings import CLOSE, OPEN
from .shell_conditions import holds, matches
from .shell_expand import Value, Variables, is_known, unknown
from .shell_script import NOTHING, Command, Script, slurm_variables, texts_of
from .shell_words import BLOCK_ENDS, ShellError, Token, block_end, tokens

MOST_STEPS = 20_000
"""Commands that are walked; launch scripts have some hundred."""

MOST_NESTED = 24

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\[[^\]]*\])?(\+?)=")
_SCRIPT = re.compile(r"\.(?:sh|bash|slurm|sbatch|sub)\Z")
_BETWEEN_COMMANDS = (";", "&&", "||", "|", "&", ";;", ")", "(")
_OUTPUTS = (">", ">>", ">|")
_OTHER_REDIRECTIONS = ("<<", "<<-", "<<<", "<", "&>", ">&", "<&")


def read_script(
    text: str,
    given: Mapping[str, str],
    others: Mapping[str, str] | None = None,
    documents: Mapping[str, Mapping[str, Any]] | None = None,
) -> Script:
    """What the script ``text`` says. ``others`` are files that it may source or start, by name; ``documents``
    are YAML files that it may read.

    Raises:
        ShellError: it cannot be cut into words, or there is no end of it.
    """
    walk = _Walk(Script(variables=Variables(given=given, documents=documents or {})), others or {})
    walk.whole(text, 0)
    return walk.script


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """One simple command as it is written: its ``words``, arrays that it assigns, the file that its output
    goes ``into`` (empty: none), and the token at which it ends."""

    words: list[str]
    arrays: list[Token]
    into: str
    end: int


def _line_of(cut: list[Token], at: int) -> _Line:
    """The command that begins at a token, up to the end of its line or the operator behind it."""
    words: list[str] = []
    arrays: list[Token] = []
    into, end = "", at
    while end < len(cut):
        token = cut[end]
        if token.kind == "newline" or (token.kind == "op" and token.text in _BETWEEN_COMMANDS):
            break
        if token.kind == "op" and token.text in (*_OUTPUTS, *_OTHER_REDIRECTIONS):
            if token.text in _OUTPUTS and end + 1 < len(cut):
                into = cut[end + 1].text
            end += 2
            continue
        if token.kind == "array":
            arrays.append(token)
        else:
            words.append(token.text)
        end += 1
    return _Line(words=words, arrays=arrays, into=into, end=end)


@dataclass
class _Walk:
    script: Script
    others: Mapping[str, str]
    steps: int = 0
    functions: dict[str, list[Token]] = field(default_factory=dict)
    inside: list[str] = field(default_factory=list)
    """Scripts that are being followed."""

    @property
    def variables(self) -> Variables:
        return self.script.variables

    def whole(self, text: str, nested: int) -> None:
        """Walk a script with its #SBATCH lines."""
        for line in re.finditer(r"^#SBATCH\s+([^#\n]*)", text, re.MULTILINE):
            for found in re.finditer(r"(--?[A-Za-z][\w-]*)(?:[=\s]\s*([^-\s]\S*))?", line[1]):
                self.script.sbatch[found[1].lstrip("-")] = (found[2] or "").strip("\"'")
        for name, value in slurm_variables(self.script.sbatch).items():
            self.variables.found.setdefault(name, value)
        self.run(tokens(text), nested)

    def run(self, cut: list[Token], nested: int) -> None:
        """Walk all commands of a list of tokens."""
        if nested > MOST_NESTED:
            raise ShellError(f"commands are nested more than {MOST_NESTED} deep", cut[0].line if cut else 0)
        at = 0
        while at < len(cut):
            at = self._statement(cut, at, nested)

    def _statement(self, cut: list[Token], at: int, nested: int) -> int:
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise ShellError(f"this script has more than {MOST_STEPS:,} commands to follow", cut[at].line)
        token = cut[at]
        if token.kind in ("newline", "op", "here"):
            return at + 1
        if token.kind == "array":
            return self._array(token, at)
        match token.text:
            case "if":
                return self._if(cut, at, nested)
            case "case":
                return self._case(cut, at, nested)
            case "for" | "select":
                return self._for(cut, at, nested)
            case "while" | "until":
                return self._while(cut, at, nested)
            case "function":
                return self._function(cut, at, cut[at + 1].text if at + 1 < len(cut) else "")
            case text if text in BLOCK_ENDS or text in ("{", "!", "time"):
                return at + 1
        if [one.text for one in cut[at + 1 : at + 3]] == ["(", ")"]:
            return self._function(cut, at, token.text)
        return self._command(cut, at, nested)

    def _array(self, token: Token, at: int) -> int:
        name = token.text.rstrip("+=")
        entries = [re.fullmatch(r"\[([^\]]+)\]=(.*)", item, re.DOTALL) for item in token.items]
        if entries and all(entries):
            for entry in filter(None, entries):
                self.variables.set(self.variables.entry(name, entry[1]), self.variables.one(entry[2]))
            return at + 1
        items = [word for item in token.items for word in self.variables.words(item)]
        if token.text.endswith("+="):
            held = self.variables.get(name) or []
            items = ([held] if isinstance(held, str) else list(held)) + items
        if len(items) > MOST_STEPS:
            raise ShellError(f"{name} has more than {MOST_STEPS:,} elements", token.line)
        self.variables.set(name, items)
        return at + 1

    def _if(self, cut: list[Token], at: int, nested: int) -> int:
        taken: bool | None = False
        ways: list[list[Token]] = []
        certain = True
        while at < len(cut) and cut[at].text in ("if", "elif"):
            then = block_end(cut, at + 1, {"then"})
            end = block_end(cut, then + 1, {"elif", "else", "fi"})
            if taken is not True:
                found = holds(cut[at + 1 : then], self.variables)
                if found is not False:
                    ways.append(cut[then + 1 : end])
                    taken, certain = (True, certain) if found else (taken, False)
            at = end
        if at < len(cut) and cut[at].text == "else":
            end = block_end(cut, at + 1, {"fi"})
            if taken is not True:
                ways.append(cut[at + 1 : end])
                taken = True
            at = end
        if taken is not True:
            ways.append([])
        self._either(ways, nested) if len(ways) > 1 or not certain else self.run(ways[0], nested + 1)
        return at + 1

    def _either(self, ways: list[list[Token]], nested: int) -> None:
        """Walk several ways of which nobody knows which is taken; what they leave different stays open."""
        before = dict(self.variables.found)
        after = []
        for way in ways:
            self.variables.found = dict(before)
            self.run(way, nested + 1)
            after.append(self.variables.found)
        merged: dict[str, Value] = {}
        for name in dict.fromkeys(name for one in after for name in one):
            values = [one.get(name) for one in after]
            merged[name] = (
                values[0]
                if all(one == values[0] for one in values) and values[0] is not None
                else unknown(name)
            )
        self.variables.found = merged

    def _case(self, cut: list[Token], at: int, nested: int) -> int:
        end = block_end(cut, at + 1, {"esac"})
        subject = self.variables.one(cut[at + 1].text) if at + 1 < end else ""
        place = next((i for i in range(at + 1, end) if cut[i].text == "in"), end) + 1
        ways, sure = [], False
        while place < end:
            close = next((i for i in range(place, end) if cut[i].text == ")"), end)
            patterns = [self.variables.one(one.text) for one in cut[place:close] if one.kind == "word"]
            stop = block_end(cut[:end], close + 1, {";;"})
            body = cut[close + 1 : stop]
            if not is_known(subject):
                ways.append(body)
            elif not sure and any(matches(subject, pattern) for pattern in patterns):
                ways, sure = [body], True
            place = stop + 1
        if is_known(subject):
            if ways:
                self.run(ways[0], nested + 1)
        elif ways:
            self._either([*ways, []], nested)
        return end + 1

    def _for(self, cut: list[Token], at: int, nested: int) -> int:
        do = block_end(cut, at + 1, {"do"}, opens={})
        end = block_end(cut, do + 1, {"done"})
        head = [one.text for one in cut[at + 1 : do] if one.kind == "word"]
        if head and not head[0].startswith("(("):
            items = [word for raw in head[2:] for word in self.variables.words(raw)]
            self.variables.set(head[0], items[0] if len(items) == 1 else unknown(head[0]))
        self.run(cut[do + 1 : end], nested + 1)
        return end + 1

    def _while(self, cut: list[Token], at: int, nested: int) -> int:
        do = block_end(cut, at + 1, {"do"}, opens={})
        end = block_end(cut, do + 1, {"done"})
        if holds(cut[at + 1 : do], self.variables):
            self.run(cut[do + 1 : end], nested + 1)
        return end + 1

    def _function(self, cut: list[Token], at: int, name: str) -> int:
        opening = next((i for i in range(at, min(at + 6, len(cut))) if cut[i].text == "{"), None)
        if opening is None:
            return at + 1
        end = block_end(cut, opening + 1, {"}"})
        self.functions[name] = cut[opening + 1 : end]
        return end + 1

    def _command(self, cut: list[Token], at: int, nested: int) -> int:
        """Follow one command, with its redirections and the here-document behind its line."""
        line = _line_of(cut, at)
        end = line.end
        into = self.variables.one(line.into) if line.into else ""
        for token in line.arrays:
            self._array(token, 0)
        here = ""
        after = end + 1
        if after < len(cut) and cut[after].kind == "here":
            here = cut[after].text if cut[after].items[0] else self._document(cut[after].text)
            if into:
                self.script.documents[into.rpartition("/")[2]] = here
        raw = line.words
        if here and raw and raw[0] == "read":  # read -r -d '' NAME <<EOF: up to no letter, so all of it
            self.variables.set(raw[-1], here if "-d" in raw else here.split("\n")[0])
        elif here and raw and re.fullmatch(r"sbatch|bash|sh", raw[0]):
            self._ask_slurm([word for one in raw[1:] for word in self.variables.words(one)])
            self._child(here, (), {}, nested)
        else:
            self._simple(raw, cut[at].line, nested)
        return max(end, at + 1)

    def _document(self, text: str) -> str:
        """A here-document with its variables put in, line by line; what is open stays marked."""
        return "\n".join(
            self.variables.one('"' + line.replace('"', '\\"') + '"') for line in text.split("\n")
        )

    def _simple(self, raw: list[str], line: int, nested: int) -> None:
        """One simple command: assignments, then words."""
        first = next((at for at, one in enumerate(raw) if not _ASSIGNMENT.match(one)), len(raw))
        if self._starts_script(raw[:first], raw[first:], nested):
            return
        while raw and (found := _ASSIGNMENT.match(raw[0])):
            self._assign(found[1], found[3], raw.pop(0)[found.end() :])
        words = [word for one in raw for word in self.variables.words(one)]
        if words and words[0] in ("export", "declare", "readonly", "typeset", "local"):
            self._declare(raw[1:], as_references="-n" in words[1:])
        elif words:
            self._run_words(words, line, nested)

    def _declare(self, raw: list[str], *, as_references: bool) -> None:
        """Assignments behind ``export``, ``declare`` and their like."""
        for one in raw:
            found = re.match(r"([A-Za-z_]\w*)(\+?)=", one)
            if found and as_references:
                self.variables.references[found[1]] = self.variables.one(one[found.end() :])
            elif found:
                self._assign(found[1], found[2], one[found.end() :])

    def _run_words(self, words: list[str], line: int, nested: int) -> None:
        """A command by its name: one of the shell's own, a function of the script, or what it starts."""
        name, rest = words[0], words[1:]
        if name in ("source", ".") and rest:
            self._source(rest[0], nested)
        elif name == "shift":
            count = int(rest[0]) if rest and re.fullmatch(r"[0-9]{1,3}", rest[0]) else 1
            self.variables.positional = self.variables.positional[count:]
        elif name in self.functions:
            self._call(name, rest, nested)
        elif name == "eval" or (name in ("bash", "sh") and rest[:1] == ["-c"]):
            self.run(tokens(" ".join(rest[1:2] if name != "eval" else rest)), nested + 1)
        elif name not in NOTHING and name not in ("echo", "[", "[[", "test"):
            self._start(words, line, nested)

    def _starts_script(self, assigned: list[str], raw: list[str], nested: int) -> bool:
        """Follow ``A=1 bash FILE ...`` where FILE was given; whether it was such a command."""
        words = [word for one in raw for word in self.variables.words(one)]
        if words[:1] == ["sbatch"]:
            words = self._ask_slurm(words[1:])
        elif words[:1] in (["bash"], ["sh"]):
            words = words[1:]
        if not words or words[0].startswith("-") or not _SCRIPT.search(words[0]):
            return False
        file = words[0].rpartition("/")[2]
        if file not in self.others or file in self.inside:
            self.script.started.append(words[0])
            return False
        own: dict[str, Value] = {}
        for found in filter(None, map(_ASSIGNMENT.match, assigned)):
            own[found[1]] = self.variables.one(found.string[found.end() :])
        self.inside.append(file)
        self._child(self.others[file], tuple(words[1:]), own, nested)
        self.inside.pop()
        return True

    def _ask_slurm(self, words: list[str]) -> list[str]:
        """Keep what ``sbatch --NAME=VALUE ...`` asks for; the words behind its options."""
        count = next((at for at, word in enumerate(words) if not word.startswith("--")), len(words))
        for word in words[:count]:
            name, _, value = word.removeprefix("--").partition("=")
            self.script.sbatch[name] = value
        return words[count:]

    def _child(self, text: str, words: tuple[str, ...], own: Mapping[str, Value], nested: int) -> None:
        """Walk a script that is started: nothing that it sets outlives it. Its commands keep what was set."""
        held, positional, count = (
            dict(self.variables.found),
            self.variables.positional,
            len(self.script.commands),
        )
        for name, value in own.items():
            self.variables.set(name, value)
        self.variables.positional = words
        self.whole(text, nested + 1)
        environment = texts_of(self.variables)
        self.script.commands[count:] = [
            one if one.environment is not None else replace(one, environment=environment)
            for one in self.script.commands[count:]
        ]
        self.variables.found, self.variables.positional = held, positional

    def _start(self, words: list[str], line: int, nested: int) -> None:
        """Keep a command that is started; one inside ``bash -c`` of a launcher is the one that counts."""
        place = next((i for i, word in enumerate(words[:-1]) if word in ("-c", "-lc")), None)
        if place is not None and place and words[place - 1] in ("bash", "sh", "/bin/bash", "/bin/sh"):
            held = len(self.script.commands)
            self.run(tokens(words[place + 1]), nested + 1)
            inner = self.script.commands[held:]
            self.script.commands[held:] = [
                replace(one, words=(*words[: place - 1], *one.words)) for one in inner
            ]
        else:
            self.script.commands.append(Command(words=tuple(words), line=line))

    def _assign(self, name: str, plus: str, raw: str) -> None:
        value = self.variables.one(raw)
        if not plus and re.fullmatch(rf"{OPEN}\$\([^{CLOSE}]*{CLOSE}", value):
            value = unknown(name)  # what a command prints is asked for by the name that it gets
        if plus:
            held = self.variables.get(name)
            if isinstance(held, list):
                held = [*held[:-1], held[-1] + value] if held else [value]
                self.variables.set(name, held)
                return
            value = (held or "") + value
        self.variables.set(name, value)

    def _source(self, file: str, nested: int) -> None:
        name = file.rpartition("/")[2]
        if name in self.others:
            self.run(tokens(self.others[name]), nested + 1)
        else:
            self.script.sourced.append(file)

    def _call(self, name: str, words: list[str], nested: int) -> None:
        held = self.variables.positional
        self.variables.positional = tuple(words)
        self.run(self.functions[name], nested + 1)
        self.variables.positional = held
