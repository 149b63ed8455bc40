"""The layers: imports point down only, nothing goes in circles, nothing heavy loads unasked."""

from __future__ import annotations

import ast
import graphlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from checkout import PACKAGES, ROOT, modules
from floors import FLOORS
from small_plans import DOCUMENT, FIX

pytestmark = pytest.mark.xdist_group("layers")  # the source is read once

FLOOR_OF = {
    name: height for height, line in enumerate(reversed(FLOORS.strip().splitlines())) for name in line.split()
}

OPTIONAL = {"google", "torch", "triton", "ray", "pyarrow", "starlette", "uvicorn"}
HEAVY = {"pandas", "scipy", "networkx", "matplotlib"}
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
    for node, at_load in import_statements(path):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, at_load, node.lineno)
        else:
            base = (
                ".".join(package.split(".")[: len(package.split(".")) - node.level + 1]) if node.level else ""
            )
            source = ".".join(filter(None, [base, node.module]))
            for alias in node.names:
                deeper = f"{source}.{alias.name}"  # from ..engine import replay: the module, if there is one
                yield Import(deeper if deeper in MODULES else source, at_load, node.lineno)


@cache
def import_statements(path: Path) -> list[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Every import statement of a file, and whether it runs when the file loads."""
    return list(_within(ast.parse(path.read_text(encoding="utf-8")), at_load=True))


def _within(block: ast.AST, *, at_load: bool) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """The import statements inside a statement; expressions hold none."""
    for field in ("body", "handlers", "orelse", "finalbody", "cases"):
        for node in getattr(block, field, ()):
            if isinstance(node, ast.Import | ast.ImportFrom):
                yield node, at_load
            else:
                yield from _within(node, at_load=at_load and not _runs_later(node))


def _runs_later(node: ast.AST) -> bool:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return True
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


@cache
def all_imports() -> list[tuple[str, Path, Import]]:
    """Every import of every module; read by the tests alone, since every worker runs the top of this file."""
    return [(module, path, one) for module, path in MODULES.items() for one in imports(module, path)]


def ours() -> list[tuple[str, Path, Import]]:
    return [
        (module, path, one) for module, path, one in all_imports() if one.target.split(".")[0] == "stepsim"
    ]


def where(path: Path, one: Import) -> str:
    return f"{path.relative_to(ROOT)}:{one.line} imports {one.target}"


def test_the_walk_sees_imports() -> None:
    """Guards the other tests: an empty walk would let everything pass."""
    seen = {(module, one.target, one.at_load) for module, _, one in ours()}
    assert ("stepsim.cli.main", "stepsim.cli.commands", True) in seen
    assert ("stepsim.cli.run", "stepsim.sim.simulate", False) in seen
    assert ("stepsim", "stepsim.sim.result.result", False) in seen


def folder_of(module: str) -> str:
    """The folder of FLOORS that a module is in, or the module itself where it stands there by itself."""
    parts = module.split(".")[1:]
    names = [".".join(parts[:length]) for length in range(len(parts), 0, -1)]
    return next((name for name in names if name in FLOOR_OF), module)


def test_every_folder_is_on_a_floor() -> None:
    roots = {"stepsim", "stepsim.sim", "stepsim.calibration"}  # they hold folders, and no code of their own
    assert {module for module in MODULES if folder_of(module) not in FLOOR_OF} == roots


def test_imports_point_down() -> None:
    """Imports for types and in functions count. The root only names its public parts, for type checkers."""
    wrong = [
        where(path, one)
        for module, path, one in ours()
        if module != "stepsim" and one.target != "stepsim"  # which says its version
        for folder, below in [(folder_of(module), folder_of(one.target))]
        if folder != below and FLOOR_OF[folder] <= FLOOR_OF[below]
    ]
    assert wrong == []


def test_imports_inside_the_package_are_relative() -> None:
    absolute = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in MODULES.values()
        for node, _ in import_statements(path)
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
    missing = [where(path, one) for _, path, one in ours() if one.target not in MODULES]
    assert missing == []


def test_no_module_imports_itself_in_a_circle() -> None:
    """Lazy imports and imports for types count: files in a circle are one file in disguise."""
    graph: dict[str, set[str]] = {module: set() for module in MODULES}
    for module, _, one in ours():
        if one.target != "stepsim":  # which says its version, and names its public parts
            graph[module].add(one.target)
    graphlib.TopologicalSorter(graph).prepare()  # CycleError names the circle


def package_of(module: str) -> str:
    """The package of a module; of those that stand on a floor by themselves, they."""
    by_itself = module in PACKAGES or module.removeprefix("stepsim.") in FLOOR_OF
    return module if by_itself else module.rpartition(".")[0]


def test_no_packages_import_each_other() -> None:
    """Lazy imports and imports for types count: a circle of packages is one package in disguise."""
    graph: dict[str, set[str]] = {package: set() for package in PACKAGES}
    for module, _, one in ours():
        home, target = package_of(module), package_of(one.target)
        if target != home and home != "stepsim":
            graph.setdefault(home, set()).add(target)
    graphlib.TopologicalSorter(graph).prepare()


@pytest.mark.parametrize("library", sorted(OPTIONAL | HEAVY))
def test_loads_only_when_needed(library: str) -> None:
    eager = [
        where(path, one)
        for _, path, one in all_imports()
        if one.at_load and one.target.split(".")[0] == library
    ]
    assert eager == []


def loaded_by(code: str) -> set[str]:
    """Top-level modules that a fresh interpreter has loaded after ``code``."""
    return {name.split(".")[0] for name in modules_loaded_by(code)}


def modules_loaded_by(code: str) -> set[str]:
    """All modules that a fresh interpreter has loaded after ``code``."""
    show = "import sys; print('LOADED', *sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{show}"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.rpartition("LOADED")[2].split())


def test_a_command_keeps_blas_to_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which BLAS reads as it loads, so that numpy may not be there yet (as the tests below hold)."""
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    code = """
import os, sys
from stepsim.cli.main import main
sys.argv = ["stepsim", "--version"]
try:
    main()
except SystemExit:
    assert os.environ["OPENBLAS_NUM_THREADS"] == "1"
"""
    assert loaded_by(code) & {"numpy"} == set()


def test_help_loads_nothing_slow() -> None:
    code = """
from stepsim.cli.main import app
try:
    app(["run", "--help"])
except SystemExit as end:
    assert end.code == 0
"""
    assert loaded_by(code) & SLOW_TO_LOAD == set()


ANSWERS_AT_ONCE = {"numpy", "orjson", "pydantic", "rich", "simpy", "yaml"}
"""What a step needs, and neither the package nor its help does."""


@pytest.mark.parametrize(
    "code",
    [
        "import stepsim",
        "from stepsim.cli.main import app\ntry:\n    app(['--help'])\nexcept SystemExit: pass",
        "from stepsim.cli.main import app\ntry:\n    app(['--version'])\nexcept SystemExit: pass",
    ],
    ids=["import", "--help", "--version"],
)
def test_what_answers_at_once_loads_nothing_of_a_step(code: str) -> None:
    assert loaded_by(code) & (SLOW_TO_LOAD | ANSWERS_AT_ONCE) == set()


@pytest.mark.slow
def test_a_run_loads_what_a_step_needs_and_no_more() -> None:
    code = """
import sys
from stepsim.cli.main import app
app(["run", "llama3-8b-h100"], standalone_mode=False)
"""
    assert loaded_by(code) & (OPTIONAL | HEAVY | {"joblib", "asyncio", "multiprocessing"}) == set()


NEEDED_BY_OTHERS = {
    "stepsim.sim.balance": "GPUs of several kinds",
    "stepsim.sim.bounded": "many slow parts",
    "stepsim.sim.children": "several faults, each left out once",
    "stepsim.sim.degradation": "faults",
    "stepsim.sim.fold.partition": "ranks or links that differ",
    "stepsim.sim.lowering.activation_offload": "activations on the host",
    "stepsim.sim.lowering.overlapped": "forwards and backwards as one",
    "stepsim.sim.lowering.sharded_actions": "sharded parameters",
    "stepsim.sim.lowering.updates.offload": "an optimizer on the host",
    "stepsim.sim.neighbours": "jobs on one fabric",
    "stepsim.sim.plan": "a choice of layouts",
    "stepsim.sim.reliability": "weeks",
    "stepsim.sim.report.step_faults_table": "faults",
    "stepsim.sim.result.variation": "GPUs of unequal speed",
    "stepsim.sim.scenario.faults": "faults and weeks",
    "stepsim.sim.scenario.faults.bare": "weeks without a model",
    "stepsim.sim.scenario.importers.registry": "files of other frameworks",
    "stepsim.sim.degraded_replay": "faults",
    "stepsim.schedules.orders.table": "a schedule in a file",
    "stepsim.schedules.p2p.torch_runtime": "another rule of messages",
    "stepsim.schedules.pipeline.zb_v": "a search for a schedule",
    "stepsim.calibration": "measured runs",
    "stepsim.page": "the page",
    "stepsim.cli.plan": "another command",
}
"""Modules and folders, and what a step has that needs them."""


def test_a_healthy_step_loads_nothing_of_what_it_has_not() -> None:
    """Loading all modules takes several times as long as a small step itself."""
    code = """
import sys
from stepsim.cli.main import main
sys.argv = ["stepsim", "run", "llama3-8b-h100"]
try:
    main()
except SystemExit as end:
    assert not end.code
"""
    loaded = modules_loaded_by(code)
    assert {"stepsim.cli.run", "stepsim.sim.simulate", "stepsim.sim.lowering.pipeline"} <= loaded
    assert set(NEEDED_BY_OTHERS) <= set(MODULES)
    assert loaded & set(NEEDED_BY_OTHERS) == set()


NEEDED_BY_OTHER_PLANS = {
    "stepsim.sim.plan.questions": "questions of one number, sweeps",
    "stepsim.sim.plan.search.emission": "the file of a framework",
    "stepsim.sim.plan.search.on_ray": "a cluster",
    "stepsim.sim.reliability": "weeks",
    "stepsim.sim.scenario.faults": "faults and weeks",
}
"""Modules and folders, and what a plan has that needs them."""


def test_a_plan_loads_nothing_of_what_it_has_not() -> None:
    assert set(NEEDED_BY_OTHER_PLANS) <= set(MODULES)
    fix = {**FIX, "parallelism.tp": 2, "training.micro_batch": 1}
    code = f"""
from stepsim.sim.plan.search.plan import plan
plan({DOCUMENT!r}, fix={fix!r}, jobs=1, audit=0)
"""
    assert modules_loaded_by(code) & set(NEEDED_BY_OTHER_PLANS) == set()


def test_importing_every_package_loads_nothing_slow() -> None:
    code = "\n".join(f"import {package}" for package in PACKAGES)
    assert loaded_by(code) & SLOW_TO_LOAD == set()
