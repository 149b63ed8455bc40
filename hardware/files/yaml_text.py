"""YAML that a stranger may have written: nodes with positions or plain values, within limits.

PyYAML's composer recurses in C, where 100,000 brackets end the process, and follows aliases without end. Its
parser does neither: here its events become nodes one after the other, counted on the way, in the same time.
Scalars follow YAML 1.2's core schema (``1e9`` is a number, ``no`` is text, ``0o17`` is
fifteen, dates are text). Does not know which keys there are.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from .errors import YamlError, size_text

TAG: Final = "tag:yaml.org,2002:"

# YAML 1.2.2 section 10.3.2, the core schema; text is what none of these matches.
_CORE: Final = tuple(
    (kind, re.compile(rf"(?:{pattern})\Z"))
    for kind, pattern in (
        ("null", r"~|null|Null|NULL|"),
        ("bool", r"true|True|TRUE|false|False|FALSE"),
        ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+"),
        (
            "float",
            r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        ),
    )
)
_MAY_BE_CORE: Final = frozenset("~nNtTfF-+.0123456789")
_LONGEST_NUMBER = 400
"""Digits of a number. float64 has at most 309 before its point; Python takes quadratic time for many."""

_PARSER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

Value = str | int | float | bool | None


@dataclass(frozen=True, kw_only=True)
class YamlLimits:
    """Most bytes, levels, keys of one block, and nodes: keys, values and blocks, aliases counted in full."""

    bytes: int = 4 * 2**20
    depth: int = 64
    keys: int = 10_000
    nodes: int = 100_000


TABLES = YamlLimits(bytes=64 * 2**20, nodes=500_000)
"""For files that list measurements or edges: the largest of ours have 110,000 nodes."""


@dataclass(slots=True)
class _Block:
    """A list or mapping that is being read; ``size`` and ``height`` are of its tree so far."""

    node: yaml.CollectionNode
    anchor: str | None
    key: yaml.Node | None = None
    size: int = 1
    height: int = 1


_SCANNER_DEPTH = "exceeded maximum nesting depth"
"""What libyaml says at 1,000 levels, since 0.2.6: it looks so far ahead before the first of our events."""


def compose_yaml(text: str, file: str | Path, limits: YamlLimits = YamlLimits()) -> yaml.Node | None:
    """The one document in ``text`` as PyYAML's nodes, with marks and tags of the core schema; None if empty.

    Nodes of an alias are those of its anchor, the same objects; none contains itself.

    Raises:
        YamlError: not YAML, or beyond ``limits``, with its line and column.
    """
    if len(text) > limits.bytes:
        raise YamlError(file, f"has more than {size_text(limits.bytes)} of YAML, the most that is read of it")
    composer = _Composer(str(file), limits)
    # Nodes live until the end, so collecting in between finds nothing and takes half of the time.
    collecting = gc.isenabled()
    gc.disable()
    try:
        # The constructor of the C parser already fails on characters that YAML does not allow.
        for event in _events(text):
            composer.take(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = ", ".join(part for part in (error.context, error.problem) if part)
        line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
        if _SCANNER_DEPTH in said:
            said = f"is nested more than {limits.depth} levels deep here"
        else:
            said = f"this is not valid YAML: {said}"
        raise YamlError(file, said, line=line, column=column) from None
    except yaml.reader.ReaderError as error:
        raise YamlError(file, f"not text that YAML allows: {error.reason}") from None
    except UnicodeEncodeError:
        raise YamlError(file, "not text that YAML allows: half of a surrogate pair") from None
    finally:
        if collecting:
            gc.enable()
    return composer.root


def load_yaml(text: str, file: str | Path, limits: YamlLimits = YamlLimits()) -> Any:
    """The document in ``text`` as dicts with text as keys, lists, text, numbers, booleans and None.

    Raises:
        YamlError: as ``compose_yaml``; a key given twice, a key that is not text, an unknown tag.
    """
    root = compose_yaml(text, file, limits)
    return None if root is None else plain(root, file)


def plain(node: yaml.Node, file: str | Path) -> Any:
    """The value of a node that ``compose_yaml`` made. YamlError as ``load_yaml``."""
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, file)
    if isinstance(node, yaml.SequenceNode):
        return [plain(item, file) for item in node.value]
    try:
        return scalar_value(node)
    except ValueError:
        raise _at(node, file, f"the tag {shown(node.tag)} does not fit {shown(node.value)}") from None


def _mapping(node: yaml.MappingNode, file: str | Path) -> dict[str, Any]:
    """A mapping with ``<<: *base`` of YAML 1.1 merged in, which people use in lists of measurements: own keys
    win."""
    entries: dict[str, Any] = {}
    bases: list[dict[str, Any]] = []
    for key, value in node.value:
        name = _key(key, file)
        if name in entries:
            raise _at(key, file, f"{shown(name)}: this key is given twice; keep one of them")
        entry = plain(value, file)
        if name == "<<" and not key.style:
            bases += entry if isinstance(entry, list) else [entry]
            if not all(isinstance(base, dict) for base in bases):
                raise _at(key, file, "<< takes a block of fields or a list of such blocks")
        else:
            entries[name] = entry
    for base in bases:
        entries = {**base, **entries}
    return entries


def scalar_value(node: yaml.Node) -> Value:
    """The value of a scalar by its tag. ValueError where the tag is unknown or does not fit the text."""
    kind, text = node.tag.removeprefix(TAG), str(node.value)
    match kind:
        case "null":
            return None
        case "bool":
            return text.lower() == "true"
        case "int" if len(text) <= _LONGEST_NUMBER:
            return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
        case "float" if len(text) <= _LONGEST_NUMBER:
            return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
        case "str":
            return text
    raise ValueError(kind)


def shown(text: str) -> str:
    """A user's text as a message quotes it, no longer than a line."""
    return repr(text if len(text) <= 80 else f"{text[:77]}...")


def _key(key: yaml.Node, file: str | Path) -> str:
    if not isinstance(key, yaml.ScalarNode):
        raise _at(key, file, "a key must be text, not a block or a list")
    # A number as a key is taken as it is written: sizes of a table have such keys.
    return str(key.value)


def _at(node: yaml.Node, file: str | Path, reason: str) -> YamlError:
    return YamlError(file, reason, line=node.start_mark.line + 1, column=node.start_mark.column + 1)


def _events(text: str) -> Iterator[Any]:
    parser = _PARSER(text)
    try:
        while parser.check_event():
            yield parser.get_event()
    finally:
        parser.dispose()


@dataclass
class _Composer:
    """Events to nodes, with a stack of ours, so that no depth of a text is a depth of calls."""

    file: str
    limits: YamlLimits
    root: yaml.Node | None = None
    documents: int = 0
    nodes: int = 0
    stack: list[_Block] = field(default_factory=list)
    anchors: dict[str, tuple[yaml.Node, int, int]] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)

    def take(self, event: Any) -> None:
        kind = type(event)
        if kind is yaml.ScalarEvent:
            self._scalar(event)
        elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
            self._open(event)
        elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
            self._close(event)
        elif kind is yaml.AliasEvent:
            self._alias(event)
        elif kind is yaml.DocumentStartEvent:
            self.documents += 1
            if self.documents > 1:
                raise self._error(event, "this is not valid YAML: a second document begins here; keep one")

    def _scalar(self, event: Any) -> None:
        text = event.value
        tag = event.tag
        if tag is None or tag == "!":
            tag = TAG + "str"
            if event.implicit[0] and (not text or text[0] in _MAY_BE_CORE):
                known = self.tags.get(text)
                tag = known or self.tags.setdefault(text, self._core(event, text))
        node = yaml.ScalarNode(tag, text, event.start_mark, event.end_mark, style=event.style)
        if event.anchor:
            self.anchors[event.anchor] = node, 1, 0
        self._add(event, node, 1, 0)

    def _core(self, event: Any, text: str) -> str:
        if len(text) > _LONGEST_NUMBER and " " not in text and "\n" not in text:
            if text.lstrip("-+.").isdigit():
                raise self._error(event, f"a number has at most {_LONGEST_NUMBER} digits")
            return TAG + "str"
        return TAG + next((kind for kind, pattern in _CORE if pattern.match(text)), "str")

    def _open(self, event: Any) -> None:
        if len(self.stack) >= self.limits.depth:
            raise self._too_deep(event)
        is_mapping = type(event) is yaml.MappingStartEvent
        tag = event.tag if event.tag not in (None, "!") else TAG + ("map" if is_mapping else "seq")
        kind = yaml.MappingNode if is_mapping else yaml.SequenceNode
        node = kind(tag, [], event.start_mark, None, flow_style=event.flow_style)
        self.stack.append(_Block(node=node, anchor=event.anchor))
        self._count(event, 1)

    def _close(self, event: Any) -> None:
        block = self.stack.pop()
        block.node.end_mark = event.end_mark
        if block.anchor:
            self.anchors[block.anchor] = block.node, block.size, block.height
        self._add(event, block.node, block.size, block.height, counted=True)

    def _alias(self, event: Any) -> None:
        if any(block.anchor == event.anchor for block in self.stack):
            raise self._error(event, "an anchor that contains itself has no end; write the block out")
        if event.anchor not in self.anchors:
            raise self._error(event, f"this is not valid YAML: found undefined alias {shown(event.anchor)}")
        node, size, height = self.anchors[event.anchor]
        if len(self.stack) + height > self.limits.depth:
            raise self._too_deep(event)
        self._add(event, node, size, height)

    def _add(self, event: Any, node: yaml.Node, size: int, height: int, *, counted: bool = False) -> None:
        if not counted:
            self._count(event, size)
        if not self.stack:
            self.root = node
            return
        block = self.stack[-1]
        block.size += size
        block.height = max(block.height, height + 1)
        if isinstance(block.node, yaml.SequenceNode):
            block.node.value.append(node)
        elif block.key is None:
            block.key = node
        else:
            block.node.value.append((block.key, node))
            block.key = None
            if len(block.node.value) > self.limits.keys:
                raise self._error(event, f"this block has more than {self.limits.keys:,} keys")

    def _count(self, event: Any, size: int) -> None:
        self.nodes += size
        if self.nodes > self.limits.nodes:
            what = f"has more than {self.limits.nodes:,} keys, values and blocks (aliases counted in full)"
            raise self._error(event, f"{what}, the most that is read of it")

    def _too_deep(self, event: Any) -> YamlError:
        return self._error(event, f"is nested more than {self.limits.depth} levels deep here")

    def _error(self, event: Any, reason: str) -> YamlError:
        mark = event.start_mark
        return YamlError(self.file, reason, line=mark.line + 1, column=mark.column + 1)
