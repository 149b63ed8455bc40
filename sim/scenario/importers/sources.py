"""One file of another framework, read: its kind, its text, its settings by dotted name with their lines.

Knows YAML, JSON, TOML, shell scripts and lists of arguments as such; does not know what any setting means.
"""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from ....hardware.files import (
    FileError,
    YamlError,
    YamlLimits,
    compose_yaml,
    load_json,
    plain,
    read_text,
)
from .plain_names import plain_name
from .settings import Setting
from .source_kinds import kind_of

LIMITS = YamlLimits(bytes=2 * 2**20, keys=5000, nodes=50_000, depth=32)
"""Files that people write; the largest of published ones has some hundred keys."""

MOST_WORDS = 20_000

_WRITTEN = re.compile(r"^# Megatron-LM (\S+), for .*\. Written by stepsim export\.$", re.MULTILINE)
"""Of the frameworks that are exported, the one whose version decides what its defaults are."""


@dataclass(frozen=True, kw_only=True)
class SourceFile:
    """A file that was read.

    ``document`` is what YAML, JSON and TOML hold, as dicts, lists and scalars; ``lines`` has the line of each
    dotted name. For a list of arguments, ``words`` are the arguments; ``environment`` what is set beside
    them.
    """

    path: Path
    kind: str
    text: str
    document: Any = None
    lines: dict[str, int] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the file without its folder, as messages and comments give it."""
        return self.path.name

    @property
    def is_command(self) -> bool:
        """Whether it starts a run: a shell script, or a list of arguments."""
        return self.kind in ("shell", "arguments")

    @property
    def command(self) -> str:
        """The text of a shell script, or a list of arguments as one line."""
        return self.text if self.kind == "shell" else " ".join(self.words)

    @property
    def keys(self) -> set[str]:
        """The outermost keys of a document."""
        return set(self.document) if isinstance(self.document, dict) else set()

    @property
    def written_version(self) -> str | None:
        """The version that ``stepsim export`` wrote the file for; None of any other file."""
        found = _WRITTEN.search(self.text)
        return None if found is None else found[1]

    def at(self, dotted: str) -> Any:
        """The value at a dotted name; None where there is none."""
        found = self.document
        for key in dotted.split("."):
            if not isinstance(found, dict) or key not in found:
                return None
            found = found[key]
        return found

    def line_of(self, word: str) -> int:
        """The first line that holds ``word`` as a whole; 0 if none does."""
        pattern = re.compile(rf"(?<![\w-]){re.escape(word)}(?![\w-])")
        for number, line in enumerate(self.text.splitlines(), 1):
            code = line.partition("#")[0] if self.kind == "shell" else line
            if pattern.search(code):
                return number
        return 0

    def settings(self, prefix: str = "") -> dict[str, Setting]:
        """The scalars and lists of the document below ``prefix``, by dotted name without it."""
        top = self.at(prefix) if prefix else self.document
        found = {}
        for name, value in _flat(top, ""):
            whole = f"{prefix}.{name}" if prefix else name
            line = self.lines.get(whole, 0)
            found[plain_name(name)] = Setting(value=value, file=self.name, name=name, line=line)
        return found


def read_source(path: Path) -> SourceFile:
    """The file at ``path``.

    Raises:
        FileError: there is none, it is too long, or it is not what its name says.
    """
    text = read_text(path, limit=LIMITS.bytes)
    return source_of(text, path)


def source_of(text: str, path: Path) -> SourceFile:
    """``text`` as the file of that name. FileError as ``read_source``."""
    kind = kind_of(path)
    if kind is None:
        kind = "shell" if text.startswith("#!") or "\n#SBATCH" in text else "arguments"
        if re.match(r"\s*\{\s*[\"}]", text):  # DeepSpeed's JSON is called .conf, too
            kind = "json"
    if kind == "toml":
        return _toml(text, path)
    if kind == "arguments":
        return _arguments(text, path)
    if kind == "shell":
        return SourceFile(path=path, kind=kind, text=text)
    document, lines = _yaml(text, path)
    if isinstance(document, dict) and isinstance(document.get("arguments"), list):
        return _record(document, text, path)
    return SourceFile(path=path, kind=kind, text=text, document=document, lines=lines)


def _yaml(text: str, path: Path) -> tuple[Any, dict[str, int]]:
    """YAML, or JSON with its comments and trailing commas, with the line of each key."""
    try:
        root = compose_yaml(text.expandtabs(2), path, LIMITS)
        if root is None:
            return None, {}
        return plain(root, path), dict(_marks(root, ""))
    except YamlError:
        if path.suffix.lower() in (".yaml", ".yml"):
            raise
        return load_json(text, path), {}


def _marks(node: Any, prefix: str) -> Iterator[tuple[str, int]]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            name = f"{prefix}{key.value}"
            yield name, key.start_mark.line + 1
            yield from _marks(value, f"{name}.")


def _flat(value: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, dict):
        return
    for key, entry in value.items():
        if isinstance(entry, dict) and entry:
            yield from _flat(entry, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", entry


def _toml(text: str, path: Path) -> SourceFile:
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a number of 5,000 digits is no TOMLDecodeError
        raise FileError(path, f"this is not valid TOML: {error}") from None
    lines: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), 1):
        if head := re.match(r"\s*\[([\w.\"-]+)\]", line):
            table = head[1] + "."
        elif entry := re.match(r"\s*([\w.-]+)\s*=", line):
            lines.setdefault(table + entry[1], number)
    return SourceFile(path=path, kind="toml", text=text, document=document, lines=lines)


def _arguments(text: str, path: Path) -> SourceFile:
    """A list of arguments as one would type them; lines may end in a backslash and begin with #."""
    try:
        words = shlex.split(text.replace("\\\n", " "), comments=True)
    except ValueError as error:
        raise FileError(path, f"these are no arguments of a shell: {error}") from None
    if len(words) > MOST_WORDS:
        raise FileError(
            path, f"has more than {MOST_WORDS:,} words, the most that is read of a list of arguments"
        )
    environment = {}
    while words and re.fullmatch(r"[A-Za-z_]\w*=.*", words[0], re.DOTALL):
        name, _, value = words.pop(0).partition("=")
        environment[name] = value
    return SourceFile(path=path, kind="arguments", text=text, words=tuple(words), environment=environment)


def _record(document: dict[str, Any], text: str, path: Path) -> SourceFile:
    """``{arguments: [[flag, value...], ...], environment: {...}}``."""
    words = [str(word) for one in document["arguments"] for word in (one if isinstance(one, list) else [one])]
    # A comment inside a list, and a default whose end was taken for more of them: ${X:-8}:-8}:-8}.
    words = [
        re.sub(r"(\$\{\w+:-[^}]*\})(?::-[^}]*\})+", r"\1", word) for word in words if not word.startswith("#")
    ]
    # What follows the line of an argument is of the script, and no value.
    words = [word.split("\n")[0].rstrip("\"'\\ ") if "\n" in word else word for word in words]
    words = [word.strip("\"'") for word in words if word.strip("\"' ")]
    environment = document.get("environment")
    named = {str(k): str(v) for k, v in environment.items()} if isinstance(environment, dict) else {}
    return SourceFile(path=path, kind="arguments", text=text, words=tuple(words), environment=named)
