"""Placements: every rank has a GPU of its own, and each kind does what it says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from topologies import regular

from stepsim.hardware.placement import Placement, gpus_of_ranks


def placed(ranks: int = 64, held: int = 64, per_node: int = 8, unit: int = 4, **options: Any) -> np.ndarray:
    return gpus_of_ranks(
        Placement(**options), ranks=ranks, gpus=held, gpus_per_node=per_node, nodes_per_unit=unit
    )


@given(
    nodes=st.integers(1, 20),
    spare=st.integers(0, 5),
    unit=st.integers(1, 6),
    kind=st.sampled_from(("contiguous", "rail-aware", "scattered")),
    group=st.sampled_from((1, 2, 4, 8)),
)
def test_every_rank_has_a_gpu_of_its_own(nodes: int, spare: int, unit: int, kind: str, group: int) -> None:
    options = {"group": group} if kind == "rail-aware" else {"seed": group} if kind == "scattered" else {}
    gpus = placed(nodes * 8, (nodes + spare) * 8, unit=unit, kind=kind, **options)
    assert len(set(gpus.tolist())) == nodes * 8
    assert 0 <= gpus.min() <= gpus.max() < (nodes + spare) * 8
    if kind != "scattered":
        assert sorted(gpus.tolist()) == list(range(nodes * 8))
    if kind == "scattered" or group == 8:
        assert (gpus.reshape(-1, 8) // 8 == gpus.reshape(-1, 8)[:, :1] // 8).all()


def test_contiguous_is_the_identity() -> None:
    assert placed(5, 8).tolist() == [0, 1, 2, 3, 4]


def test_rail_aware_neighbours_are_one_switch_apart() -> None:
    """Pairs stay in a host; the next pair is on the same rails of the unit's next host."""
    gpus = placed(kind="rail-aware", group=2)
    assert gpus[:10].tolist() == [0, 1, 8, 9, 16, 17, 24, 25, 2, 3]
    topology = regular("rail-optimized", gpus=64, nodes_per_leaf=4)
    assert topology.links_of(gpus[0], gpus[2]).hops.tolist() == [4.0]
    assert topology.links_of(gpus[1], gpus[3]).hops.tolist() == [4.0]


def test_scattered_depends_on_the_seed_alone() -> None:
    assert placed(kind="scattered", seed=1).tolist() == placed(kind="scattered", seed=1).tolist()
    assert placed(kind="scattered", seed=1).tolist() != placed(kind="scattered", seed=2).tolist()


def test_an_explicit_list_is_taken_as_it_is() -> None:
    assert placed(3, 8, kind="explicit", gpus=(7, 0, 3)).tolist() == [7, 0, 3]


@pytest.mark.parametrize(("sizes", "options", "message"), [
    ({"ranks": 2}, {"kind": "explicit", "gpus": (0,)}, "lists 1 GPUs for 2 ranks"),
    ({"ranks": 2}, {"kind": "explicit", "gpus": (0, 64)}, "rank 1: .*GPU 64; .*0 to 63"),
    ({"ranks": 2}, {"kind": "explicit", "gpus": (5, 5)}, "GPU 5 .*ranks 0 and 1"),
    ({}, {"kind": "explicit"}, "needs gpus"),
    ({}, {"kind": "rail-aware", "group": 3}, "group 3 .*8 GPUs .*1, 2, 4, 8"),
    ({}, {"kind": "rail-aware", "group": 0}, "group .*1"),
    ({}, {"kind": "contiguous", "seed": 1}, "'contiguous' .*seed; .*scattered"),
    ({}, {"kind": "scattered", "group": 2}, "group; .*rail-aware"),
    ({}, {"kind": "scattered", "seed": -1}, "seed .*0"),
    ({}, {"kind": "scatterd"}, "mean scattered"),
    ({"ranks": 65}, {}, "65 ranks.*64 GPUs"),
])  # fmt: skip
def test_placements_that_do_not_fit_are_refused(
    sizes: dict[str, int], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        placed(**sizes, **options)
