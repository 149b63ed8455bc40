"""The engine on hand-made programs: streams, waits, meetings, sharing, SMs, host."""

from __future__ import annotations

import math
from collections.abc import Hashable
from random import Random

import pytest
from hand_made_programs import kernel, programs
from hypothesis import given
from hypothesis import strategies as st

from stepsim.sim.engine.replay import replay
from stepsim.sim.network.sharing import Demand, max_min_rates
from stepsim.sim.network.transfer import Transfer
from stepsim.sim.program.program import (
    Block,
    Collective,
    Compute,
    Exchange,
    MessageEnd,
    Op,
    RepeatedBlocks,
)


def test_streams_run_in_order_and_waits_join_them() -> None:
    record = replay(programs([kernel(1.0), kernel(5.0, stream="side"), kernel(1.0), kernel(1.0, after=(1,))]))
    assert list(record.end[0]) == [1.0, 5.0, 2.0, 6.0]


def test_a_collective_starts_with_its_last_member_and_ends_for_all() -> None:
    transfer = Transfer(0.5, 50.0, math.inf, (("nvlink.out", 1.0),))
    work = Collective("all_reduce", "world", transfer)
    late = [kernel(3.0), Op("reduce", "world", "dp", work, (0,))]
    early = [Op("reduce", "world", "dp", work)]
    record = replay(programs(late, early, communicators={"world": (0, 1)}))
    assert record.end[0][1] == record.end[1][0] == 3.0 + 0.5 + 50.0 / 100.0
    assert record.begin[1][0] == 3.0
    assert record.released(1, 0) == (0, 1)


def test_a_message_waits_for_both_ends() -> None:
    transfer = Transfer(1.0, 20.0, math.inf, (("nic", 1.0),))
    send = Op("send", "pp", "pp", Exchange((MessageEnd(True, 1, "0F0", transfer),)), (0,))
    receive = Op("receive", "pp", "pp", Exchange((MessageEnd(False, 0, "0F0", transfer),)))
    record = replay(programs([kernel(2.0), send], [receive]))
    assert record.end[0][1] == record.end[1][0] == 2.0 + 1.0 + 20.0 / 10.0


def test_two_flows_on_one_link_share_it() -> None:
    flow = Transfer(0.0, 10.0, math.inf, (("nic.out", 1.0),))
    ops = [Op("a", "s1", "dp", Collective("x", "a", flow)), Op("b", "s2", "dp", Collective("x", "b", flow))]
    assert list(replay(programs(ops)).end[0]) == [2.0, 2.0]


def test_communication_holds_sms_and_slows_math() -> None:
    flow = Transfer(0.0, 10.0, math.inf, (("nic.out", 1.0),), sms=50)
    record = replay(programs([kernel(2.0), Op("a", "dp", "dp", Collective("x", "a", flow))]))
    # one second at half speed, the rest at full speed
    assert list(record.end[0]) == [2.5, 1.0]


def test_a_slow_host_bounds_small_kernels_and_a_sync_restarts_it() -> None:
    assert list(replay(programs([kernel(1.0, host_s=3.0), kernel(1.0, host_s=3.0)])).end[0]) == [4.0, 7.0]
    sync = Op("sync", "compute", "compute", Compute(1.0, "gemm"), host_s=1.0, host_sync=True)
    record = replay(programs([kernel(10.0, host_s=1.0), sync, kernel(1.0, host_s=2.0)]))
    assert list(record.end[0]) == [11.0, 12.0, 15.0]


@given(
    st.lists(st.tuples(st.floats(0.01, 10), st.floats(0.01, 10)), min_size=1, max_size=8),
    st.integers(1, 4),
    st.floats(0, 30),
)
def test_repeated_blocks_take_as_long_as_their_ops(
    sizes: list[tuple[float, float]], count: int, delay: float
) -> None:
    """Device- or host-bound, whatever the host's lead at the start."""
    ops = [kernel(device, host_s=host) for device, host in sizes]
    block = Block("block", tuple(ops))
    host_s = count * sum(host for _, host in sizes)
    folded = Op("repeated", "compute", "compute", RepeatedBlocks(((block, count),)), host_s=host_s)
    first = kernel(delay, host_s=0.5)
    expanded = replay(programs([first, *(ops * count)])).makespan_s
    assert replay(programs([first, folded])).makespan_s == pytest.approx(expanded, rel=1e-9)


def test_a_deadlock_is_reported_by_name() -> None:
    transfer = Transfer(1.0, 0.0, math.inf)
    lonely = Op("receive", "pp", "pp", Exchange((MessageEnd(False, 0, "0F0", transfer),)), action="1F0")
    with pytest.raises(RuntimeError, match=r"class 0 at op 0 \(receive 1F0"):
        replay(programs([lonely]))


demands = st.lists(
    st.builds(
        Demand,
        st.floats(0.1, 100),
        st.dictionaries(st.sampled_from("abcde"), st.floats(0.1, 4), min_size=1, max_size=3).map(
            lambda d: tuple(d.items())
        ),
    ),
    min_size=1,
    max_size=8,
)


@given(demands, st.fixed_dictionaries({link: st.floats(1, 50) for link in "abcde"}))
def test_rates_are_feasible_and_every_activity_has_a_bottleneck(
    found: list[Demand], capacity: dict[Hashable, float]
) -> None:
    rates = max_min_rates(found, capacity)
    load = {
        link: sum(r * w for d, r in zip(found, rates, strict=True) for name, w in d.weights if name == link)
        for link in capacity
    }
    assert all(load[link] <= capacity[link] * (1 + 1e-9) for link in capacity)
    for demand, rate in zip(found, rates, strict=True):
        phi = rate * demand.heaviest
        at_ceiling = rate >= demand.ceiling * (1 - 1e-9)
        on_full_link = any(
            load[link] >= capacity[link] * (1 - 1e-6)
            and all(
                phi >= r * d.heaviest * (1 - 1e-6)
                for d, r in zip(found, rates, strict=True)
                if link in dict(d.weights)
            )
            for link, _ in demand.weights
        )
        assert at_ceiling or on_full_link


@given(demands, st.fixed_dictionaries({link: st.floats(1, 50) for link in "abcde"}), st.randoms())
def test_rates_do_not_depend_on_order(
    found: list[Demand], capacity: dict[Hashable, float], random: Random
) -> None:
    order = list(range(len(found)))
    random.shuffle(order)
    rates = max_min_rates(found, capacity)
    shuffled = max_min_rates([found[i] for i in order], capacity)
    assert [rates[i] for i in order] == pytest.approx(shuffled, rel=1e-9)
