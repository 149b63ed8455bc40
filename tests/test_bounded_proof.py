"""What proven bounds rest on: least and most shares of links, messages at once, SMs held, monotone steps."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
import pytest
from bounded_jobs import LARGE, replicas, step_s, wrong
from hypothesis import given
from hypothesis import strategies as st
from law_examples import examples
from small_scenarios import layouts, lowered, scenario
from struck_steps import TWIN

from stepsim.sim.bounded.conditions import why_exact
from stepsim.sim.bounded.extremes import Extremes, apart, least
from stepsim.sim.bounded.messages_in_flight import messages_between
from stepsim.sim.bounded.programs import whole
from stepsim.sim.bounded.replicas import replicas_of
from stepsim.sim.bounded.sm_holding import holds_follow_kernels
from stepsim.sim.fold.fold import unfolded
from stepsim.sim.fold.ranks import Degradation, ranks_of
from stepsim.sim.network.sharing import Demand, max_min_rates
from stepsim.sim.network.transfer import Transfer
from stepsim.sim.program.program import (
    UNORDERED,
    Collective,
    Compute,
    Exchange,
    MessageEnd,
    Op,
    Program,
    Programs,
)

LINKS = ("nvlink.out", "nvlink.in", "nic.out", "nic.in")


def programs_of(*classes: tuple[Op, ...], rate: float = 10.0) -> Programs:
    return Programs(
        classes=tuple(Program(ops=ops) for ops in classes),
        communicators={},
        links=(dict.fromkeys(LINKS, rate),) * len(classes),
        sms=100,
        corun_slowdown=0.0,
    )


def test_a_gather_beside_a_message_takes_between_its_least_and_its_most() -> None:
    """40 bytes at 10 a second beside a message of 5: alone both take 4 and 0.5 s, with half of the link each
    8 and 1 s; the message begins after 1 s.
    """
    job = replicas(1.0)
    extremes = Extremes(job, 1.0)
    steps = [step_s(one) for one in (least(job), job, extremes.most(job))]
    assert steps == pytest.approx([4.0, 4.5, 8.0])
    assert not apart(job)


transfers = st.builds(
    lambda ceiling, weights: Transfer(0.0, 1.0, ceiling, tuple(weights.items())),
    st.floats(0.5, 20.0),
    st.dictionaries(st.sampled_from(LINKS), st.sampled_from([0.25, 0.5, 1.0, 1.75]), min_size=1),
)


@examples(15)
@given(st.lists(st.lists(transfers, min_size=1, max_size=3), min_size=1, max_size=5), st.data())
def test_shares_are_between_the_least_and_the_most(
    streams: list[list[Transfer]], data: st.DataObject
) -> None:
    """Of what any streams move at once, one of its own each."""
    ops = [
        Op("gather", f"stream {s}", "dp", Collective("all_gather", "dp", one))
        for s, stream in enumerate(streams)
        for one in stream
    ]
    job = programs_of(tuple(ops))
    extremes = Extremes(job, 1.0)
    at_most, at_least = (
        [
            op.work.transfer.ceiling_bytes_per_s
            for op in made.classes[0].ops
            if isinstance(op.work, Collective)
        ]
        for made in (least(job), extremes.most(job))
    )
    first = np.cumsum([0, *map(len, streams)])
    moving = data.draw(st.lists(st.sampled_from(range(len(streams))), min_size=1, unique=True))
    chosen = [int(first[s]) + data.draw(st.integers(0, len(streams[s]) - 1)) for s in moving]
    demands = []
    for i in chosen:
        work = ops[i].work
        assert isinstance(work, Collective)
        demands.append(Demand(work.transfer.ceiling_bytes_per_s, work.transfer.weights))
    links: dict[Hashable, float] = dict(job.links[0].items())
    rates = max_min_rates(demands, links)
    for i, rate in zip(chosen, rates, strict=True):
        assert at_least[i] * (1 - 1e-9) <= rate <= at_most[i] * (1 + 1e-9)
    if apart(job):
        assert at_least == pytest.approx(at_most)


@pytest.mark.parametrize(("lasting_s", "count"), [(0.5, 1), (1.0, 1), (1.5, 2), (2.5, 3), (100.0, 4)])
def test_messages_are_as_far_apart_as_the_kernels_before_them(lasting_s: float, count: int) -> None:
    """Four kernels of a second, a message behind each, which the other stage is ready to receive."""
    message = Transfer(0.0, 1.0, 1.0, (("nic", 1.0),))

    def end(send: bool, i: int) -> Exchange:
        return Exchange((MessageEnd(send, int(send), f"0F{i}", message),))

    kernels = [Op("kernel", "compute", "compute", Compute(1.0, "gemm")) for _ in range(4)]
    sends = [Op("send", UNORDERED, "pp", end(True, i), after=(i,)) for i in range(4)]
    receives = [Op("receive", UNORDERED, "pp", end(False, i)) for i in range(4)]
    found = messages_between(programs_of((*kernels, *sends), tuple(receives)), 1.0)
    assert found[0, 1].at_once([lasting_s] * 4) == count
    twice_as_fast = messages_between(programs_of((*kernels, *sends), tuple(receives)), 0.5)
    assert twice_as_fast[0, 1].at_once([lasting_s / 2] * 4) == count


def sent(source: int, target: int, number: int, *, send: bool) -> Op:
    """An end of a message that no stream orders, of 10 bytes a second on links of both of its ranks."""
    message = Transfer(0.0, 1.0, 10.0, (("nic.out", 1.0), ("nic.in", 1.0)))
    peer = target if send else source
    part = MessageEnd(send, peer, f"{source} to {target}, {number}", message)
    return Op("message", UNORDERED, "pp", Exchange((part,)))


def least_rates(job: Programs) -> list[float]:
    """The rate that each end of a message has at least."""
    return [
        part.transfer.ceiling_bytes_per_s
        for program in Extremes(job, 1.0).most(job).classes
        for op in program.ops
        if isinstance(op.work, Exchange)
        for part in op.work.parts
    ]


def test_messages_that_no_stream_orders_may_be_beside_one_another() -> None:
    """Two from one stage to another, on a link of 10 bytes a second: each has half of it at least."""
    ends = [tuple(sent(0, 1, i, send=send) for i in (0, 1)) for send in (True, False)]
    assert least_rates(programs_of(*ends)) == pytest.approx([5.0] * 4)


def test_a_message_has_at_least_what_the_fuller_of_its_ends_leaves() -> None:
    """Two senders have a link each, and their receiver one for both."""
    receives = (sent(0, 1, 0, send=False), sent(2, 1, 0, send=False))
    job = programs_of((sent(0, 1, 0, send=True),), receives, (sent(2, 1, 0, send=True),))
    assert least_rates(job) == pytest.approx([5.0] * 4)


GATHER = Collective("all_gather", "dp", Transfer(0.0, 1.0, 1.0, sms=10))
KERNELS = tuple(Op("kernel", "compute", "compute", Compute(1.0, "gemm")) for _ in range(3))
RECEIVED = Op("receive", "pp", "pp", Exchange((MessageEnd(False, 0, "0F0", GATHER.transfer),)))


@pytest.mark.parametrize(
    ("others", "follow"),
    [
        ((Op("gather", "dp", "dp", GATHER, after=(0,)),), True),
        ((Op("gather", "dp", "dp", GATHER, after=(0,)), Op("gather", "dp", "dp", GATHER)), True),
        ((Op("gather", "dp", "dp", GATHER), Op("gather", "tp", "tp", GATHER, after=(3,))), False),
        ((RECEIVED, Op("gather", "dp", "dp", GATHER, after=(3,))), False),
        ((RECEIVED, Op("gather", "dp", "dp", GATHER, after=(2, 3))), True),
    ],
    ids=["after a kernel", "after one of its stream", "of another", "a message", "a message and all kernels"],
)
def test_sms_are_held_from_when_kernels_get_there(others: tuple[Op, ...], follow: bool) -> None:
    assert holds_follow_kernels(programs_of((*KERNELS, *others))) is follow


@pytest.mark.slow
@examples(8)
@given(data=st.data())
def test_with_fixed_times_of_communication_a_step_grows_with_each_factor(data: st.DataObject) -> None:
    """Kernels contend with what holds SMs all the same."""
    sizes: dict[str, Any] = data.draw(st.sampled_from([{}, LARGE]))
    one = lowered(data.draw(layouts(dp=4, **sizes)))
    less = data.draw(wrong(one.plan.scenario.world_size))
    if why_exact(one, less) or not holds_follow_kernels(one.programs):
        return
    more = data.draw(wrong(one.plan.scenario.world_size)).slow
    slower = {r: less.slow.get(r, 1.0) * max(1.0, more.get(r, 1.0)) for r in {*less.slow, *more}}
    extremes = Extremes(one.programs, 0.5)
    for made in (least, extremes.most):
        steps = [step_s(made(unfolded(one, d).programs)) for d in (less, Degradation(slow=slower))]
        assert steps[0] <= steps[1] * (1 + 1e-9)


def test_all_replicas_whole_are_the_job() -> None:
    one = lowered(scenario(**{**TWIN, "tp": 2, "dp": 3}))
    degradation = Degradation(slow={0: 1.3, 5: 1.1, 20: 1.2})
    ranks = ranks_of(one)
    found = replicas_of(one.plan.process_groups, ranks, degradation)
    assert found is not None
    every = whole(one.programs, ranks, found, np.arange(found.count))
    assert step_s(every) == pytest.approx(step_s(unfolded(one, degradation).programs), rel=1e-9)
    some = whole(one.programs, ranks, found, np.array([0]))
    assert step_s(some) < step_s(every)
