"""A rule stands once: no condition over two fields of a scenario is written in two files.

Two fields that are asked together are a rule of some framework, such as "fused by a kernel, or by
torch.compile". It belongs to the block that has the fields, as a property with a name.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

import pytest
from checkout import modules

from stepsim.sim.scenario.blocks import ClusterSpec, Parallelism, Training
from stepsim.sim.scenario.model.model import Model
from stepsim.sim.scenario.software.software import GROUPS, Software

BLOCKS = (ClusterSpec, Parallelism, Training, Model)


def fields_of_scenarios() -> set[str]:
    groups = [Software.model_fields[group].annotation for group in GROUPS]
    blocks = [*BLOCKS, *(group for group in groups if group is not None)]
    return {name for block in blocks for name in block.model_fields}  # type: ignore[attr-defined]


def asked(node: ast.expr) -> str | None:
    """The field that an operand asks for, with what it is compared to; None for anything else."""
    if isinstance(node, ast.Compare) and isinstance(node.comparators[0], ast.Constant):
        left = asked(node.left)
        return left and f"{left} {type(node.ops[0]).__name__} {node.comparators[0].value!r}"
    return node.attr if isinstance(node, ast.Attribute) else None


def conditions(tree: ast.AST, fields: set[str]) -> Iterator[str]:
    """Every ``and`` and ``or`` whose operands are fields and nothing else."""
    for node in ast.walk(tree):
        if isinstance(node, ast.BoolOp):
            operands = [asked(value) for value in node.values]
            if all(one is not None and one.split(" ")[0] in fields for one in operands):
                yield f"{type(node.op).__name__.lower()}: {', '.join(sorted(map(str, operands)))}"


def in_several(trees: dict[str, ast.AST], fields: set[str]) -> dict[str, list[str]]:
    """Conditions with the modules that have them, where these are several."""
    found: dict[str, set[str]] = defaultdict(set)
    for name, tree in trees.items():
        for condition in conditions(tree, fields):
            found[condition].add(name)
    return {condition: sorted(where) for condition, where in found.items() if len(where) > 1}


@pytest.mark.slow
def test_no_condition_over_two_fields_is_written_twice() -> None:
    trees: dict[str, ast.AST] = {
        name: ast.parse(path.read_text(encoding="utf-8"))
        for name, path in modules().items()
        if ".importers." not in name  # other frameworks' fields, which have these names too
    }
    assert in_several(trees, fields_of_scenarios()) == {}


def test_the_walk_sees_a_condition_in_two_files() -> None:
    one, other = "x = s.host.a or s.b == 1", "y = q.b == 1 or k.a\nz = k.a or f(k.b)"
    trees: dict[str, ast.AST] = {"one": ast.parse(one), "other": ast.parse(other)}
    assert in_several(trees, {"a", "b"}) == {"or: a, b Eq 1": ["one", "other"]}
    assert in_several(trees, {"a"}) == {}
