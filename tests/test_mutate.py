"""The helper that makes documents wrong: it repeats, it changes no argument, and it reaches every place."""

from __future__ import annotations

import copy
import doctest
from random import Random

from fuzz import mutate
from fuzz.mutate import (
    FEW,
    contents,
    deletions,
    documents,
    mutated,
    mutated_bytes,
    node_at,
    places,
    replacements,
)
from hypothesis import given
from hypothesis import strategies as st

DOCUMENT = {"a": [1, {"b": None}], "c": {"d": "x"}}


def test_its_examples_hold() -> None:
    assert doctest.testmod(mutate).failed == 0


def test_every_place_is_replaced_and_removed() -> None:
    assert len(list(places(DOCUMENT))) == 7
    made = list(replacements(DOCUMENT))
    assert len(made) == 7 * len(FEW)
    for path, value, document in made:
        found = node_at(document, path)
        assert found is value or found == value or found != found
    assert {path for path, _ in deletions(DOCUMENT)} == set(places(DOCUMENT)) - {()}


@given(st.integers(0, 10**6), st.integers(1, 5))
def test_a_seed_is_a_mutation(seed: int, times: int) -> None:
    before = copy.deepcopy(DOCUMENT)
    one, other = (mutated(DOCUMENT, Random(seed), times) for _ in range(2))
    assert repr(one) == repr(other)
    assert before == DOCUMENT
    content = b"0123456789" * 5
    assert mutated_bytes(content, Random(seed), times) == mutated_bytes(content, Random(seed), times)


@given(documents(DOCUMENT), contents(b"some text"))
def test_strategies_draw_what_can_be_written(document: object, content: bytes) -> None:
    assert isinstance(mutate.as_json(document), bytes)
    assert isinstance(content, bytes)
