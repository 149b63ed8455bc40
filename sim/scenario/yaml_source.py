"""YAML text as a tree with positions, by the rules of YAML 1.2.

Knows the core schema (``1e9`` is a number, ``no`` is text, ``0o17`` is fifteen) and that a key
stands once. Does not know which keys there are.
"""

from __future__ import annotations

import re
from typing import Any, Final

import yaml

from .errors import Mark, Problem, ScenarioError
from .tree import Node, Scalar

_TAG: Final = "tag:yaml.org,2002:"

# YAML 1.2.2 section 10.3.2, the core schema; text is what none of these matches.
_CORE: Final = (
    ("null", r"(?:~|null|Null|NULL|)", "~nN\0"),
    ("bool", r"(?:true|True|TRUE|false|False|FALSE)", "tTfF"),
    ("int", r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)", "-+0123456789"),
    (
        "float",
        r"(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))",
        "-+.0123456789",
    ),
)

_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _CoreLoader(_Base):  # type: ignore[misc]  # PyYAML finds its rules on the class
    """PyYAML with YAML 1.2's core schema in place of YAML 1.1's."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - PyYAML fills it


for _name, _pattern, _first in _CORE:
    _starts = ["" if letter == "\0" else letter for letter in _first]
    _CoreLoader.add_implicit_resolver(_TAG + _name, re.compile(rf"\A{_pattern}\Z"), _starts)


def read_tree(text: str, file: str, *, shown: str | None = None) -> Node:
    """``text`` as a tree; ``file`` names it in messages. An empty text is null.

    ``shown`` is the line that messages show where ``text`` is no file but a part of that line.

    Raises:
        ScenarioError: a syntax error, a key given twice, a key that is not text, an unknown tag.
    """
    reader = _Reader(file=file, lines=text.splitlines() if shown is None else [shown], numbered=shown is None)
    try:
        root = yaml.compose(text, Loader=_CoreLoader)
    except yaml.MarkedYAMLError as error:
        raise ScenarioError([reader.syntax_problem(error)]) from None
    except yaml.reader.ReaderError as error:
        message = f"not text that YAML allows: {error.reason}"
        raise ScenarioError([Problem(mark=Mark(file=file), path="", message=message)]) from None
    if root is None:
        return Node(value=None, mark=Mark(file=file))
    tree = reader.node(root, ())
    if reader.problems:
        raise ScenarioError(reader.problems)
    return tree


class _Reader:
    """Turns PyYAML's nodes into ours and gathers what is wrong on the way."""

    def __init__(self, *, file: str, lines: list[str], numbered: bool) -> None:
        self.file = file
        self.lines = lines
        self.numbered = numbered
        self.problems: list[Problem] = []
        self.open: set[int] = set()

    def node(self, source: Any, path: tuple[str, ...], key_mark: Mark | None = None) -> Node:
        mark = self._mark(source.start_mark)
        if isinstance(source, yaml.ScalarNode):
            return Node(value=self._scalar(source, mark, path), mark=mark, key_mark=key_mark)
        if id(source) in self.open:
            self._refuse(mark, path, "an anchor that contains itself has no end; write the block out")
            return Node(value=None, mark=mark, key_mark=key_mark)
        self.open.add(id(source))
        value: dict[str, Node] | list[Node]
        if isinstance(source, yaml.MappingNode):
            value = self._mapping(source, path)
        else:
            value = [self.node(item, path) for item in source.value]
        self.open.remove(id(source))
        return Node(value=value, mark=mark, key_mark=key_mark)

    def _mapping(self, source: Any, path: tuple[str, ...]) -> dict[str, Node]:
        entries: dict[str, Node] = {}
        for key_node, value_node in source.value:
            mark = self._mark(key_node.start_mark)
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag != _TAG + "str":
                self._refuse(mark, path, "a key must be text; put quotes around it if it is meant")
                continue
            key = str(key_node.value)
            entry = self.node(value_node, (*path, key), key_mark=mark)
            first = entries.setdefault(key, entry)
            if first is not entry and first.key_mark:
                where = f"first on line {first.key_mark.line}"
                self._refuse(mark, (*path, key), f"this key is given twice ({where}); keep one of them")
        return entries

    def _scalar(self, source: Any, mark: Mark, path: tuple[str, ...]) -> Scalar:
        kind, text = source.tag.removeprefix(_TAG), source.value
        try:
            return _scalar_value(kind, text)
        except ValueError:
            self._refuse(mark, path, f"the tag {source.tag} does not fit {text!r}; leave the tag out")
            return None

    def syntax_problem(self, error: yaml.MarkedYAMLError) -> Problem:
        """What PyYAML says, at the place where it says it."""
        position = error.problem_mark or error.context_mark
        mark = self._mark(position) if position else Mark(file=self.file)
        reason = ", ".join(part for part in (error.context, error.problem) if part)
        advice = "; indent with spaces, not tabs" if "\t" in mark.source_line else ""
        return Problem(mark=mark, path="", message=f"this is not valid YAML: {reason}{advice}")

    def _mark(self, position: Any) -> Mark:
        if not self.numbered:
            return Mark(file=self.file, column=position.column + 1, source_line=self.lines[0])
        line = self.lines[position.line] if position.line < len(self.lines) else ""
        return Mark(
            file=self.file,
            line=position.line + 1,
            column=position.column + 1,
            source_line=line,
        )

    def _refuse(self, mark: Mark, path: tuple[str, ...], message: str) -> None:
        self.problems.append(Problem(mark=mark, path=".".join(path), message=message))


def _scalar_value(kind: str, text: str) -> Scalar:
    match kind:
        case "null":
            return None
        case "bool":
            return text.lower() == "true"
        case "int":
            base = {"0o": 8, "0x": 16}.get(text[:2], 10)
            return int(text, base)
        case "float":
            return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
        case "str":
            return text
    raise ValueError(kind)
