"""Tests of refusals pin fields, codes, names and values, so that a sentence may be worded better.

Three words in a row are a sentence. What a name stands for is looked up where the test itself binds it: in
``parametrize`` and in ``for``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
SENTENCE = re.compile(r"(?<![\w/.'-])[A-Za-z]+( +[A-Za-z]+){2,}(?![\w/.'=-])")


def names_bound(target: ast.expr) -> list[str]:
    """The names that a ``for`` or a ``parametrize`` binds, in their order."""
    if isinstance(target, ast.Constant):
        return [name.strip() for name in str(target.value).split(",")]
    parts = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
    return [ast.unparse(part).strip("'\"") for part in parts]


def values_of(name: str, function: ast.AST) -> Iterator[ast.expr]:
    """What ``name`` is bound to, in turn, by the lists written out in ``function`` and its decorators."""
    for node in ast.walk(function):
        if isinstance(node, ast.For):
            names, values = names_bound(node.target), node.iter
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("parametrize"):
            names, values = names_bound(node.args[0]), node.args[1]
        else:
            continue
        if name not in names or not isinstance(values, ast.Tuple | ast.List):
            continue
        for row in values.elts:
            alone = len(names) == 1 or not isinstance(row, ast.Tuple)
            yield row if alone else row.elts[names.index(name)]  # type: ignore[attr-defined]


def texts(pinned: ast.expr, function: ast.AST) -> Iterator[str]:
    """Every text written in ``pinned``, or in what its names stand for."""
    for node in ast.walk(pinned):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value.replace("\\", "")
        elif isinstance(node, ast.Name):
            for value in values_of(node.id, function):
                yield from texts(value, ast.Module(body=[], type_ignores=[]))


def pins(function: ast.AST) -> Iterator[ast.expr]:
    """What is looked for in a message: ``match=...``, ``refused_at(...)``, ``in str(error.value)``."""
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.raises":
            yield from (keyword.value for keyword in node.keywords if keyword.arg == "match")
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "refused_at":
            yield from node.args
        elif isinstance(node, ast.Compare) and re.fullmatch(
            r"str\(\w+\.value\)", ast.unparse(node.comparators[0])
        ):
            yield node.left


def sentences(source: str) -> list[str]:
    """The sentences that the tests in ``source`` pin."""
    functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    return [
        text
        for function in functions
        for pinned in pins(function)
        for text in texts(pinned, function)
        if SENTENCE.search(text)
    ]


@pytest.mark.slow
def test_no_test_pins_a_sentence() -> None:
    found = {path.name: sentences(path.read_text(encoding="utf-8")) for path in sorted(TESTS.rglob("*.py"))}
    assert {name: pinned for name, pinned in found.items() if pinned} == {}


WRITTEN = {
    "match": 'with pytest.raises(E, match="PINNED"): f()',
    "part": 'with pytest.raises(E, match=rf"{x}PINNED"): f()',
    "for": 'for a, b in ((1, "PINNED"),):\n  with pytest.raises(E, match=re.escape(b)): f(a)',
    "refused_at": 'with refused_at("a.b", "PINNED"): f()',
    "in": 'assert "PINNED" in str(error.value)',
}
CASES = '@pytest.mark.parametrize(("a", "b"), [(1, "PINNED")])\n'


@pytest.mark.parametrize("pinned", ["gpus: 3", "0 to 7", "mean ring?", "rank 0, action 2"])
@pytest.mark.parametrize("how", [*WRITTEN, "parametrize"])
def test_the_walker_tells_a_sentence_from_names(how: str, pinned: str) -> None:
    cases = f"{CASES}def test(a, b):\n with pytest.raises(E, match=b): f(a)"
    source = f"def test():\n {WRITTEN[how]}" if how in WRITTEN else cases
    assert sentences(source.replace("PINNED", "that is too much")) == ["that is too much"]
    assert sentences(source.replace("PINNED", pinned)) == []
