"""What is in flight at the moments of a rank: those that no other reaches are compared, each once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepsim.sim.plan.screen import in_flight
from stepsim.sim.plan.screen.in_flight import largest


@given(
    st.integers(1, 4).flatmap(
        lambda width: st.lists(
            st.lists(st.integers(0, 3), min_size=width, max_size=width), min_size=1, max_size=30
        )
    )
)
def test_the_largest_rows_are_those_that_no_other_reaches(rows: list[list[int]]) -> None:
    found = largest(np.array(rows, dtype=np.int16)).tolist()
    different = {tuple(row) for row in rows}
    beaten = {
        row
        for row in different
        for other in different
        if other != row and all(there >= here for here, there in zip(row, other, strict=True))
    }
    assert len(found) == len(different - beaten)
    assert {tuple(row) for row in found} == different - beaten


def test_a_moment_that_comes_again_is_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipeline that is full repeats itself for most of a step."""
    compared: list[int] = []

    def noted(rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        found = different(rows)
        compared.append(len(found))
        return found

    different = in_flight._different
    monkeypatch.setattr(in_flight, "_different", noted)
    largest(np.array([[1, 2], [2, 1], [1, 2], [0, 1]] * 100, dtype=np.int16))
    assert compared == [3]
