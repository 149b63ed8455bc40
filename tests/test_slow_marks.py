"""What ``make test-fast`` leaves out by the mark ``slow`` leaves a test of every file in it."""

from __future__ import annotations

import ast
from pathlib import Path

TESTS = Path(__file__).parent
ELSEWHERE = {"torch", "browser"}
"""Marks of files that run where the machine has what they need."""


def marks(nodes: list[ast.expr]) -> set[str]:
    """The names of the marks in ``pytest.mark.name`` or ``pytest.mark.name(...)``."""
    return {
        one.attr
        for node in nodes
        for one in ast.walk(node)
        if isinstance(one, ast.Attribute) and ast.unparse(one.value) == "pytest.mark"
    }


def marked(source: str) -> tuple[set[str], list[set[str]]]:
    """The marks of a file, and those of each of its tests."""
    body = ast.parse(source).body
    of_file = [
        node.value
        for node in body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
    ]
    tests = [node for node in body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    return marks(of_file), [marks(test.decorator_list) for test in tests]


def test_every_file_has_a_test_that_is_not_slow() -> None:
    sources = {path: path.read_text(encoding="utf-8") for path in TESTS.rglob("test_*.py")}
    found = {path: marked(source) for path, source in sources.items() if "mark.slow" in source}
    assert sum("slow" in one for _, tests in found.values() for one in tests) > 100  # the walk sees them
    left_out = [
        path.name
        for path, (of_file, tests) in found.items()
        if not of_file & ELSEWHERE and all("slow" in of_file | one for one in tests)
    ]
    assert left_out == []
