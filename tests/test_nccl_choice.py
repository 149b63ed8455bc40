"""NCCL's choice of algorithm and protocol: the quickest of what is legal, NCCL_ALGO and NCCL_PROTO obeyed.

Sections are those of the project's table of hardware facts, read in NCCL 2.28.9.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nccl_communicators import A100, AR, B200, GIB, H100, H800, A, P, choose, on, seconds

from stepsim.schedules import collectives
from stepsim.schedules.transfers.collective import CollectiveKind
from stepsim.schedules.transfers.group import RankGroup
from stepsim.sim.network.nccl.choice import allowed, legal_choices
from stepsim.sim.network.nccl.constants import NcclProtocol
from stepsim.sim.network.nccl.cost_model import TUNED, combinations
from stepsim.sim.network.nccl.paths import Communicator

# What is legal --------------------------------------------------------------------------------------


def legal(kind: str, comm: Communicator) -> set[str]:
    return {algorithm.value for algorithm, _ in combinations(CollectiveKind(kind), comm)}


@pytest.mark.parametrize(
    ("kind", "comm", "expected"),
    [
        ("all_reduce", on(A100, 1), {"Ring", "Tree"}),
        ("all_reduce", on(H100, 1), {"Ring", "Tree", "NVLS"}),
        ("all_reduce", on(H100, 2), {"Ring", "Tree", "NVLSTree"}),
        (
            "all_reduce",
            on(H100, 2, sharp=True),
            {"Ring", "Tree", "NVLS", "NVLSTree", "CollNetDirect", "CollNetChain"},
        ),
        ("all_gather", on(H100, 1), {"Ring", "NVLS"}),
        ("all_gather", on(H100, 2), {"Ring"}),
        ("reduce_scatter", on(H100, 2, sharp=True), {"Ring", "NVLS", "CollNetDirect"}),
        ("reduce_scatter", on(H100, 2, "ib-ndr400-x4", sharp=True), {"Ring"}),
        ("all_gather", on(H100, 2, local=1), {"Ring", "PAT"}),
        ("broadcast", on(H100, 2, sharp=True), {"Ring"}),
        ("reduce", on(H100, 1), {"Ring"}),
    ],
)
def test_algorithms_that_nccl_enables_are_the_tables(
    kind: str, comm: Communicator, expected: set[str]
) -> None:
    """Section 3.1, "Enabled sets"."""
    assert legal(kind, comm) == expected


def test_only_ring_and_tree_have_the_low_latency_protocols() -> None:
    comm = on(H100, 2, sharp=True)
    for algorithm, protocol in combinations(AR, comm):
        assert protocol is P.SIMPLE or algorithm in (A.RING, A.TREE)
    for without in (replace(comm, ll128=False), replace(comm, nvlink=False)):
        assert P.LL128 not in {protocol for _, protocol in combinations(AR, without)}


# The choice -----------------------------------------------------------------------------------------

kinds = st.sampled_from(TUNED)
sizes = st.integers(1, 1 << 36)
comms = st.builds(
    on,
    st.sampled_from([A100, H100, H800, B200]),
    st.integers(2, 64),
    local=st.sampled_from([1, 2, 4, 8]),
    cpu=st.sampled_from(["intel", "amd", "other"]),
    sharp=st.booleans(),
)


@given(kinds, sizes, comms)
def test_the_choice_is_the_quickest_of_what_is_legal(
    kind: CollectiveKind, size: int, comm: Communicator
) -> None:
    chosen = choose(kind, size, comm)
    times = {pair: seconds(*pair, kind, size, comm) for pair in combinations(kind, comm)}
    assert chosen.predicted_s == min(times.values()) == times[chosen.algorithm, chosen.protocol]
    assert 0 < chosen.predicted_s < math.inf
    assert 1 <= chosen.channels <= comm.channels or chosen.algorithm in (A.NVLS, A.NVLS_TREE)


@given(kinds, sizes, comms, st.sampled_from(["Ring", "^Tree", "ring,tree", "^NVLSTree,NVLS"]))
def test_asking_for_less_is_never_quicker(
    kind: CollectiveKind, size: int, comm: Communicator, algo: str
) -> None:
    assert choose(kind, size, comm, nccl_algo=algo).predicted_s >= choose(kind, size, comm).predicted_s


@given(kinds, sizes, comms)
def test_every_choice_has_an_algorithm_that_runs_there(
    kind: CollectiveKind, size: int, comm: Communicator
) -> None:
    """What a simulator needs to join them: the transfers of the chosen algorithm on that group."""
    group = RankGroup(local=comm.local, nodes=comm.nodes)
    for each in legal_choices(kind, size, comm):
        assert collectives.get(each.algorithm.schedule).plan(kind, group).steps > 0


@pytest.mark.parametrize(
    ("comm", "algorithm", "protocol"),
    [
        (on(A100, 1), A.RING, P.SIMPLE),
        (on(H100, 1), A.NVLS, P.SIMPLE),
        (on(H100, 2), A.NVLS_TREE, P.SIMPLE),
        (on(H100, 16), A.RING, P.SIMPLE),
    ],
)
def test_small_all_reduces_take_ll_and_large_ones_simple(
    comm: Communicator, algorithm: A, protocol: P
) -> None:
    small, large = choose("all_reduce", 8, comm), choose("all_reduce", 8 * GIB, comm)
    assert small.protocol is P.LL
    assert small.algorithm is (A.TREE if comm.nodes > 1 else A.RING)
    assert (large.algorithm, large.protocol) == (algorithm, protocol)


def test_pat_is_for_few_bytes_on_many_nodes_of_one_gpu() -> None:
    comm = on(H100, 64, local=1)
    assert choose("all_gather", 1024, comm).algorithm is A.PAT
    assert choose("all_gather", GIB, comm).algorithm is A.RING


def test_small_messages_get_fewer_channels() -> None:
    """Section 3.2: while bytes < channels · threads · threshold; LL rings by rank."""
    comm = on(H100, 1)
    by_size = {size: choose("all_gather", size, comm, nccl_proto="LL").channels for size in (8, 1 << 16, GIB)}
    assert by_size == {8: 1, 1 << 16: 2, GIB: 24}
    assert choose("all_reduce", GIB, comm).channels == 16
    assert choose("all_reduce", 1 << 18, comm, nccl_algo="Ring", nccl_proto="Simple").channels == 8


# NCCL_ALGO and NCCL_PROTO ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, {"LL", "LL128", "Simple"}),
        ("simple", {"Simple"}),
        ("LL,ll128", {"LL", "LL128"}),
        ("^LL128", {"LL", "Simple"}),
        ("allreduce:LL;broadcast:Simple", {"LL"}),
        ("broadcast:Simple", {"LL", "LL128", "Simple"}),
        ("LL;allreduce:^LL", {"LL128", "Simple"}),
    ],
)
def test_the_lists_of_nccl(value: str | None, expected: set[str]) -> None:
    assert allowed("NCCL_PROTO", value, AR, NcclProtocol) == expected


def test_overrides_are_obeyed() -> None:
    comm = on(H100, 2)
    assert choose("all_reduce", GIB, comm, nccl_algo="Ring").algorithm is A.RING
    assert choose("all_reduce", 8, comm, nccl_proto="Simple").protocol is P.SIMPLE
    assert {each.algorithm for each in legal_choices("all_reduce", 8, comm, nccl_algo="^Ring,Tree")} == {
        A.NVLS_TREE
    }


@pytest.mark.parametrize(
    ("kind", "variables", "what"),
    [
        ("all_to_all", {}, "'all_to_all'.*all_reduce"),
        (
            "all_reduce",
            {"nccl_algo": "Rnig"},
            r"NCCL_ALGO: .*'Rnig'.*mean Ring\?.*Tree",
        ),
        ("all_reduce", {"nccl_proto": "LL64"}, "NCCL_PROTO:.*'LL64'"),
        (
            "all_reduce",
            {"nccl_algo": "allreduc:Ring"},
            "NCCL_ALGO: .*'allreduc'.*mean allreduce",
        ),
        ("all_gather", {"nccl_algo": "Tree"}, "all_gather on 16 .*Ring/LL,"),
    ],
)
def test_what_cannot_be_is_refused(kind: str, variables: dict[str, str], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        choose(kind, GIB, on(H100, 2), **variables)


def test_other_machines_are_refused() -> None:
    with pytest.raises(ValueError, match=r"'cdna3'; .*ampere, ada, hopper, blackwell"):
        on("MI300X", 1)
    with pytest.raises(ValueError, match=r"3 ranks .*4 nodes"):
        replace(on(H100, 1), ranks=3, nodes=4)
