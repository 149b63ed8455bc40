"""YAML 1.2 as it is read: core schema, marks, and what is refused."""

from __future__ import annotations

import pytest
from refusals import refused_at

from stepsim.sim.scenario.errors import ScenarioError
from stepsim.sim.scenario.yaml_source import read_tree


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e9", 1e9), ("1.5E+3", 1500.0), (".5", 0.5), ("3.", 3.0), ("-.inf", float("-inf")),
        ("12", 12), ("-7", -7), ("017", 17), ("0o17", 15), ("0xfF", 255),
        ("no", "no"), ("yes", "yes"), ("on", "on"), ("1:30", "1:30"), ("1_000", "1_000"),
        ("2024-01-01", "2024-01-01"), ("'12'", "12"), ("<<", "<<"),
        ("true", True), ("False", False), ("null", None), ("~", None), ("", None),
    ],
)  # fmt: skip
def test_plain_scalars_follow_yaml_1_2(text: str, value: object) -> None:
    node = read_tree(f"key: {text}", "f").entries["key"]
    assert node.value == value
    assert type(node.value) is type(value)


def test_marks_count_lines_and_columns_from_one() -> None:
    tree = read_tree("a:\n  b: [1,\n      x]\n", "f")
    inner = tree.entries["a"].entries["b"]
    assert (inner.mark.line, inner.mark.column) == (2, 6)
    assert inner.key_mark
    assert (inner.key_mark.line, inner.key_mark.column) == (2, 3)
    assert isinstance(inner.value, list)
    assert (inner.value[1].mark.line, inner.value[1].mark.column) == (3, 7)


@pytest.mark.parametrize(
    ("text", "where", "words"),
    [
        ("a: 1\nb: 2\na: 3\n", (3, 1), "given twice (first on line 1)"),
        ("a:\n  b: 1\n  b: 1\n", (3, 3), "given twice"),
        ("a: [1, 2\nb: 3\n", (2, 2), "not valid YAML"),
        ("a:\n\tb: 1\n", (2, 1), "spaces, not tabs"),
        ("a: 1\n---\nb: 2\n", (2, 1), "not valid YAML"),
        ("1: a\n", (1, 1), "a key must be text"),
        ("? [a]\n: b\n", (1, 3), "a key must be text"),
        ("a: !!python/name:os.system x\n", (1, 4), "leave the tag out"),
        ("a: !!int x\n", (1, 4), "leave the tag out"),
        ("a: &x [*x]\n", (1, 8), "contains itself"),
        ("a: *x\n", (1, 4), "not valid YAML"),
    ],
)
def test_refusals_name_the_place(text: str, where: tuple[int, int], words: str) -> None:
    with pytest.raises(ScenarioError) as refusal:
        read_tree(text, "f.yaml")
    (problem,) = refusal.value.problems
    assert (problem.mark.line, problem.mark.column) == where
    assert words in str(problem)
    assert str(problem).startswith(f"f.yaml:{where[0]}:{where[1]}: ")


def test_anchors_and_block_text_are_read() -> None:
    tree = read_tree("a: &one [1, 2]\nb: *one\nc: >-\n  two\n  lines\n", "f")
    assert tree.plain() == {"a": [1, 2], "b": [1, 2], "c": "two lines"}


def test_control_characters_are_refused() -> None:
    with refused_at("", "f: ", "YAML"):
        read_tree("a: \x00", "f")
