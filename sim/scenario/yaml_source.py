"""YAML text as a tree with positions, by the rules of YAML 1.2.

Knows the core schema (``1e9`` is a number, ``no`` is text, ``0o17`` is fifteen) and that a key
stands once. Does not know which keys there are.
"""

from __future__ import annotations

from typing import Any, Final

import yaml

from ...hardware.files import YamlError, YamlLimits, compose_yaml, scalar_value
from ...hardware.shown import clipped
from .errors import Mark, Problem, ScenarioError
from .tree import Scalar, TreeNode

LIMITS: Final = YamlLimits(keys=1000, nodes=50_000)
"""People write scenarios, of some hundred keys; each mistake is looked up and explained by itself."""

_TAG: Final = "tag:yaml.org,2002:"


SHOWN_SUFFIXES: Final = (".yaml", ".yml", ".json")
"""Files whose lines messages show. ``extends: /etc/shadow`` in a document from elsewhere must print nothing
of that file but that it is not a scenario; a file that its owner named so is meant to be read as one."""


def read_tree(text: str, file: str, *, shown: str | None = None) -> TreeNode:
    """``text`` as a tree; ``file`` names it in messages. An empty text is null.

    ``shown`` is the line that messages show where ``text`` is not a file but a part of that line.

    Raises:
        ScenarioError: a syntax error, a key given twice, a key that is not text, an unknown tag.
    """
    lines = text.splitlines() if file.endswith(SHOWN_SUFFIXES) else []
    reader = _Reader(file=file, lines=lines if shown is None else [shown], numbered=shown is None)
    try:
        root = compose_yaml(text, file, LIMITS)
    except YamlError as error:
        raise ScenarioError([reader.syntax_problem(error)]) from None
    if root is None:
        return TreeNode(value=None, mark=Mark(file=file))
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

    def node(self, source: Any, path: tuple[str, ...], key_mark: Mark | None = None) -> TreeNode:
        mark = self._mark(source.start_mark)
        if isinstance(source, yaml.ScalarNode):
            return TreeNode(value=self._scalar(source, mark, path), mark=mark, key_mark=key_mark)
        value: dict[str, TreeNode] | list[TreeNode]
        if isinstance(source, yaml.MappingNode):
            value = self._mapping(source, path)
        else:
            value = [self.node(item, path) for item in source.value]
        return TreeNode(value=value, mark=mark, key_mark=key_mark)

    def _mapping(self, source: Any, path: tuple[str, ...]) -> dict[str, TreeNode]:
        entries: dict[str, TreeNode] = {}
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
        try:
            return scalar_value(source)
        except ValueError:
            text = f"the tag {clipped(source.tag)} does not fit {clipped(source.value)!r}; leave the tag out"
            self._refuse(mark, path, text)
            return None

    def syntax_problem(self, error: YamlError) -> Problem:
        """What is wrong with the text as YAML, at the place where it is."""
        mark = self._place(error.line, error.column) if error.line else Mark(file=self.file)
        advice = "; indent with spaces, not tabs" if "\t" in mark.source_line else ""
        return Problem(mark=mark, path="", message=f"{error.reason}{advice}")

    def _mark(self, position: Any) -> Mark:
        return self._place(position.line + 1, position.column + 1)

    def _place(self, number: int, column: int) -> Mark:
        if not self.numbered:
            return Mark(file=self.file, column=column, source_line=self.lines[0])
        line = self.lines[number - 1] if number <= len(self.lines) else ""
        return Mark(file=self.file, line=number, column=column, source_line=line)

    def _refuse(self, mark: Mark, path: tuple[str, ...], message: str) -> None:
        self.problems.append(Problem(mark=mark, path=".".join(path), message=message))
