"""What ships is reached by what ships: no public function or class is there for tests alone.

Counted from the source, without running it. The commands, what the package exports, and what registries and
loops over a folder's modules find by its name (``FOUND_BY_NAME``) are where users begin; whatever these
mention by an imported or own name is reached, and so on through functions, classes (as wholes) and constants.
Names are resolved through imports, so that two functions of one name are two. A constant's own statement is
followed only where the constant is.

Public methods and module constants are counted by their bare names: one that neither shipped code nor the
documentation mentions beside its own definition is there for tests alone, or for nothing.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TypeAlias

import pytest

pytestmark = pytest.mark.xdist_group("reached")  # the source is read once

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("schedules", "hardware", "kernels", "sim", "calibration")
SHELLS = ("cli", "page")
FOUND_BY_NAME = {"SCHEDULE", "ALGORITHM", "IMPORTER", "EXPORTER", "network"}

Module: TypeAlias = tuple[str, ...]
Name: TypeAlias = tuple[Module, str]


class Source:
    """The modules of a package: what each defines, and what its names stand for."""

    def __init__(self, trees: Mapping[Module, ast.Module], packages: Iterable[Module]) -> None:
        self.trees, packages = trees, set(packages)
        self.defined: dict[Name, list[ast.stmt]] = {}
        self.imported: dict[Name, Name] = {}
        for module, tree in trees.items():
            for node in tree.body:
                for name in _defines(node):
                    self.defined.setdefault((module, name), []).append(node)
            for found in ast.walk(tree):
                if isinstance(found, ast.ImportFrom) and found.level:
                    above = module[: len(module) - found.level + (module in packages)]
                    origin = above + tuple(found.module.split(".") if found.module else ())
                    for alias in found.names:
                        self.imported[module, alias.asname or alias.name] = origin, alias.name

    def reached(self, roots: Iterable[tuple[Module, ast.AST]]) -> set[Name]:
        """All that ``roots`` mention, directly or through what they mention."""
        todo, seen = list(roots), set[Name]()
        while todo:
            module, node = todo.pop()
            for name in self._mentions(module, node):
                if name not in seen:
                    seen.add(name)
                    todo += [(name[0], one) for one in self.defined[name]]
        return seen

    def _mentions(self, module: Module, node: ast.AST) -> Iterator[Name]:
        for one in ast.walk(node):
            if isinstance(one, ast.Name):
                found = self._resolved((module, one.id))
            elif isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name):
                owner = self._resolved((module, one.value.id))
                found = self._resolved(((*owner[0], owner[1]), one.attr)) if owner else None
            else:
                continue
            if found in self.defined:
                yield found

    def _resolved(self, name: Name) -> Name | None:
        """Where a name is defined; a module is named by its package."""
        seen = set[Name]()
        while name not in self.defined and name in self.imported and name not in seen:
            seen.add(name)
            name = self.imported[name]
        return name if name in self.defined or (*name[0], name[1]) in self.trees else None


def _defines(node: ast.stmt) -> list[str]:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", ast.Pass())]
    return [one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)]


def roots_of(source: Source) -> Iterator[tuple[Module, ast.AST]]:
    """Where users begin, and statements of modules that are no definition."""
    exported = {one.value for one in ast.walk(source.trees[()]) if isinstance(one, ast.Constant)}
    for module, tree in source.trees.items():
        for node in tree.body:
            names = set(_defines(node))
            if not isinstance(node, (ast.Import, ast.ImportFrom)) and (
                not names or module[:1] in [(), *((shell,) for shell in SHELLS)] or names & FOUND_BY_NAME
            ):
                yield module, node
    yield from ((n[0], ast.Name(n[1])) for n in source.defined if n[1] in exported)


def unreached(source: Source) -> list[str]:
    """Public functions and classes of the shipped folders that nothing reaches."""
    seen = source.reached(roots_of(source))
    return sorted(
        f"{'.'.join(module)}.{name}"
        for (module, name), nodes in source.defined.items()
        if module[:1] in [(folder,) for folder in FOLDERS]
        and isinstance(nodes[0], (ast.FunctionDef, ast.ClassDef))
        and not name.startswith("_")
        and name not in FOUND_BY_NAME
        and (module, name) not in seen
    )


@cache
def shipped() -> Source:
    paths = [p for folder in (*FOLDERS, *SHELLS) for p in sorted((ROOT / folder).rglob("*.py"))]
    modules = {_module(path): path for path in [ROOT / "__init__.py", *paths]}
    trees = {module: ast.parse(path.read_text(encoding="utf-8")) for module, path in modules.items()}
    return Source(trees, [module for module, path in modules.items() if path.name == "__init__.py"])


def _module(path: Path) -> Module:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return parts[:-1] if parts[-1] == "__init__" else parts


def members(tree: ast.Module) -> Iterator[str]:
    """Public constants of a module, and public methods of its classes."""
    for node in tree.body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            yield from _defines(node)
        elif isinstance(node, ast.ClassDef):
            yield from (one.name for one in node.body if isinstance(one, ast.FunctionDef))


def unmentioned(trees: Mapping[Module, ast.Module], documentation: str) -> list[str]:
    """Members of the shipped folders whose names only their own definitions write."""
    told = set(re.findall(r"\w+", documentation)) | FOUND_BY_NAME
    for tree in trees.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                told.add(node.id)
            elif isinstance(node, ast.Attribute):
                told.add(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
                told.add(node.value)
    return sorted(
        f"{'.'.join(module)}.{name}"
        for module, tree in trees.items()
        if module[:1] in [(folder,) for folder in (*FOLDERS, "page")]
        for name in members(tree)
        if not name.startswith("_") and name not in told
    )


@pytest.mark.slow
def test_every_method_and_constant_is_mentioned_where_it_ships() -> None:
    documentation = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md"))
    assert unmentioned(shipped().trees, documentation) == []


def test_members_that_only_their_definitions_write_are_listed() -> None:
    source = "USED = 1\nLEFT = USED\nclass A:\n def called(self): pass\n def never(self): self.called()\n"
    assert unmentioned({("sim", "a"): ast.parse(source)}, "") == ["sim.a.LEFT", "sim.a.never"]


@pytest.mark.slow
def test_all_that_ships_is_reached_by_what_ships() -> None:
    assert unreached(shipped()) == []


def test_what_only_itself_or_the_unreached_mention_is_listed() -> None:
    """A function that calls itself, one that only it calls, and a namesake of one that is reached."""
    trees = {
        (): ast.parse(""),
        ("cli", "main"): ast.parse("from ..sim.a import used\nused()"),
        ("sim", "a"): ast.parse(
            "from . import b\nfrom .b import helper\n"
            "def used(): return b.other()\n"
            "def alone(): return alone() + helper()\n"
        ),
        ("sim", "b"): ast.parse("def other(): pass\ndef helper(): pass\ndef used(): pass\n"),
    }
    assert unreached(Source(trees, [()])) == ["sim.a.alone", "sim.b.helper", "sim.b.used"]
