"""What-if figures of stragglers: against steps that can be worked out by hand, and laws."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepsim.sim.what_if.figures import usual, what_if
from stepsim.sim.what_if.operations import Operation, Operations

MICROBATCHES = 3


def pipeline(stages: int, microbatches: int = MICROBATCHES) -> Operations:
    """A pipeline of forwards that ends in a collective of all: stage s waits for stage s - 1 and itself."""
    found: list[Operation] = []
    at: dict[tuple[int, int], int] = {}
    for stage in range(stages):
        for k in range(microbatches):
            before = [at[place] for place in ((stage - 1, k), (stage, k - 1)) if place in at]
            at[stage, k] = len(found)
            found.append(Operation(kind="forward-compute", stage=stage, after=tuple(before)))
    for stage in range(stages):
        last = (at[stage, microbatches - 1],)
        found.append(
            Operation(
                kind="optimizer",
                stage=stage,
                after=last,
                group=0,
                joins_replicas=True,
                communicates=True,
                ends_step=True,
            )
        )
    return Operations(all=tuple(found))


def durations(operations: Operations, replicas: int, steps: int = 1) -> np.ndarray:
    """A second of each forward, nothing of the collective."""
    own = [1.0 if operation.kind == "forward-compute" else 0.0 for operation in operations.all]
    return np.broadcast_to(np.array(own)[:, None, None], (len(own), replicas, steps)).copy()


def test_pure_data_parallelism_waits_for_its_slowest_replica() -> None:
    operations = pipeline(1)
    own_s = durations(operations, replicas=40)
    own_s[:MICROBATCHES, 7] = 2.0  # one of 40 takes twice as long: all usual is (39 + 2) / 40
    found = what_if(operations, own_s)
    assert found.slowdown == pytest.approx(2.0 / (41 / 40))
    assert found.waste == pytest.approx(1 - 1 / found.slowdown)
    assert found.worst[0] == (7, 0)
    assert len(found.worst) == 2  # 3 % of 40, rounded up
    assert found.worst_workers_share == pytest.approx((2.0 - 41 / 40) / (2.0 - 41 / 40))
    assert found.by_replica[7] == pytest.approx(2.0 / (41 / 40))
    assert found.last_stage_share == pytest.approx(1.0)


def test_a_slow_last_stage_is_told_from_slow_workers() -> None:
    """Stages of 1, 1, 1, 2 s, 3 microbatches: (1 + 1 + 1) + 3 * 2; all usual 1.25 s: 6 * 1.25."""
    operations = pipeline(4)
    own_s = durations(operations, replicas=2)
    own_s[3 * MICROBATCHES : 4 * MICROBATCHES] = 2.0
    found = what_if(operations, own_s)
    assert (found.step_s, found.ideal_s) == (pytest.approx(9.0), pytest.approx(7.5))
    # Stages of 1, 1, 1, 1.25 s: 3 + 3 * 1.25, better than all usual.
    assert found.last_stage_share == pytest.approx((9.0 - 6.75) / 1.5)
    assert found.by_kind["optimizer"] == pytest.approx(1.0)


def test_communication_is_usual_at_its_median() -> None:
    operations = Operations(
        all=(Operation(kind="send", stage=0, group=1, communicates=True, ends_step=True),)
    )
    own_s = np.array([[[1.0], [1.0], [10.0]]])
    assert usual(operations, own_s) == pytest.approx(np.ones((1, 3, 1)))


@given(st.integers(1, 3), st.integers(1, 4), st.integers(0, 2**31))
def test_longer_operations_never_shorten_a_step(stages: int, replicas: int, seed: int) -> None:
    """Nothing lost where all take as long; a longer operation never makes a step shorter."""
    operations, random = pipeline(stages), np.random.default_rng(seed)
    even = what_if(operations, durations(operations, replicas))
    assert even.slowdown == pytest.approx(1.0)
    own_s = random.uniform(0.5, 2.0, (len(operations.all), replicas, 2))
    longer = own_s + random.uniform(0.0, 1.0, own_s.shape)
    assert (operations.step_times_s(longer) >= operations.step_times_s(own_s) - 1e-12).all()
    one_by_one = [operations.step_times_s(own_s[:, :, k : k + 1])[0] for k in range(2)]
    assert operations.step_times_s(own_s) == pytest.approx(one_by_one)


def test_bad_input_is_refused() -> None:
    operations = pipeline(1)
    circle = (
        Operation(kind="a", stage=0, after=(1,), ends_step=True),
        Operation(kind="b", stage=0, after=(0,)),
    )
    with pytest.raises(ValueError, match="circle"):
        Operations(all=circle)
    with pytest.raises(ValueError, match="step"):
        Operations(all=(Operation(kind="a", stage=0),))
    with pytest.raises(ValueError, match="shape"):
        what_if(operations, np.ones((1, 1, 1)))
    with pytest.raises(ValueError, match="durations"):
        what_if(operations, np.full((len(operations.all), 1, 1), np.nan))
