"""The layers: imports point down only, nothing goes in circles, nothing heavy loads unasked."""

from __future__ import annotations

import ast
import graphlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from checkout import PACKAGES, ROOT, modules

BELOW = {
    "cli": {"calibration", "sim", "schedules", "kernels", "hardware"},
    "calibration": {"kernels", "hardware"},
    "sim": {"schedules", "kernels", "hardware", "scenarios"},
    "kernels": {"hardware"},
    "hardware": set(),
    "schedules": set(),
    "scenarios": set(),
}
"""What each layer may import besides itself. scenarios holds data only."""

OPTIONAL = {"torch", "triton", "ray", "pyarrow"}
HEAVY = {"pandas", "scipy", "networkx"}
SLOW_TO_LOAD = OPTIONAL | HEAVY | {"simpy", "rich", "numpy", "joblib", "orjson"}

MODULES = modules()


@dataclass(frozen=True)
class Import:
    """One imported module, named absolutely. ``at_load``: outside functions and TYPE_CHECKING."""

    target: str
    at_load: bool
    line: int


def imports(module: str, path: Path) -> Iterator[Import]:
    """Every import statement of a file."""
    package = module if path.stem == "__init__" else module.rpartition(".")[0]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    later = {id(node) for outer in ast.walk(tree) if _runs_later(outer) for node in ast.walk(outer)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, id(node) not in later, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            base = (
                ".".join(package.split(".")[: len(package.split(".")) - node.level + 1]) if node.level else ""
            )
            source = ".".join(filter(None, [base, node.module]))
            for alias in node.names:
                deeper = f"{source}.{alias.name}"  # from ..engine import replay: the module, if there is one
                yield Import(deeper if deeper in MODULES else source, id(node) not in later, node.lineno)


def _runs_later(node: ast.AST) -> bool:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        return True
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


IMPORTS = [(module, path, one) for module, path in MODULES.items() for one in imports(module, path)]
OURS = [(module, path, one) for module, path, one in IMPORTS if one.target.split(".")[0] == "stepsim"]


def where(path: Path, one: Import) -> str:
    return f"{path.relative_to(ROOT)}:{one.line} imports {one.target}"


def test_the_walk_sees_imports() -> None:
    """Guards the other tests: an empty walk would let everything pass."""
    seen = {(module, one.target, one.at_load) for module, _, one in OURS}
    assert ("stepsim.cli.main", "stepsim.cli.run", True) in seen
    assert ("stepsim.cli.run", "stepsim.sim.simulate", False) in seen
    assert ("stepsim", "stepsim.sim.result.step", False) in seen


def test_every_layer_has_a_rule() -> None:
    assert {package.split(".")[1] for package in PACKAGES if package != "stepsim"} == set(BELOW)


def test_imports_point_down() -> None:
    upward = [
        where(path, one)
        for module, path, one in OURS
        if module != "stepsim"  # the root only names its public parts, for type checkers
        for layer, target in [(module.split(".")[1], [*one.target.split("."), ""][1])]
        if target != layer and target not in BELOW[layer] and target
    ]
    assert upward == []


def test_imports_inside_the_package_are_relative() -> None:
    absolute = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in MODULES.values()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if (
            isinstance(node, ast.Import)
            and any(alias.name.split(".")[0] == "stepsim" for alias in node.names)
        )
        or (
            isinstance(node, ast.ImportFrom)
            and not node.level
            and (node.module or "").split(".")[0] == "stepsim"
        )
    ]
    assert absolute == []


def test_imports_name_modules_that_exist() -> None:
    """Lazy imports are otherwise found missing only by whoever calls the function."""
    missing = [where(path, one) for _, path, one in OURS if one.target not in MODULES]
    assert missing == []


def test_no_module_imports_itself_in_a_circle() -> None:
    graph: dict[str, set[str]] = {module: set() for module in MODULES}
    for module, _, one in OURS:
        if one.at_load and one.target != module:
            graph[module].add(one.target)
    graphlib.TopologicalSorter(graph).prepare()  # CycleError names the circle


def test_no_packages_import_each_other() -> None:
    """Lazy imports and imports for types count: a circle of packages is one package in disguise."""
    graph: dict[str, set[str]] = {package: set() for package in PACKAGES}
    for module, path, one in OURS:
        home = module if path.stem == "__init__" else module.rpartition(".")[0]
        target = one.target if one.target in PACKAGES else one.target.rpartition(".")[0]
        if target != home and home != "stepsim":
            graph[home].add(target)
    graphlib.TopologicalSorter(graph).prepare()


@pytest.mark.parametrize("library", sorted(OPTIONAL | HEAVY))
def test_loads_only_when_needed(library: str) -> None:
    eager = [
        where(path, one) for _, path, one in IMPORTS if one.at_load and one.target.split(".")[0] == library
    ]
    assert eager == []


def loaded_by(code: str) -> set[str]:
    """Top-level modules that a fresh interpreter has loaded after ``code``."""
    show = "import sys; print('LOADED', *{name.split('.')[0] for name in sys.modules})"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{show}"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.rpartition("LOADED")[2].split())


def test_help_loads_nothing_slow() -> None:
    code = """
from stepsim.cli.main import app
try:
    app(["run", "--help"])
except SystemExit as end:
    assert end.code == 0
"""
    assert loaded_by(code) & SLOW_TO_LOAD == set()


def test_importing_every_package_loads_nothing_slow() -> None:
    code = "\n".join(f"import {package}" for package in PACKAGES)
    assert loaded_by(code) & SLOW_TO_LOAD == set()
