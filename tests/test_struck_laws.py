"""Whatever is wrong with a job, and whoever is beside it: its step is that of all its ranks, one by one.

One law over all that makes ranks differ together: faults of GPUs, hosts and links, alone and several at once;
spreads of GPUs, their memory and their links, by every law and unit; other jobs on the fabric. Where few
replicas stand for all, bounds are proven and the step of all lies between them, however far apart they are;
else it is equal to 1e-9. It draws few jobs; ``HYPOTHESIS_PROFILE=explore pytest tests/test_struck_laws.py``
draws 500, and others each time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, event, given, reject, settings
from hypothesis import strategies as st
from small_experts import expert_layouts
from small_scenarios import changed, layouts, scenario
from struck_steps import LINES

from stepsim.sim.bounded import bounds as bounds_module
from stepsim.sim.bounded import conditions
from stepsim.sim.lowering.layers.amax import AMAX_GROUPS, amax_group
from stepsim.sim.result.result import Result
from stepsim.sim.scenario.load import scenario_from_document
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.scenario.refusal import NotSupported
from stepsim.sim.scenario.variation import preset_names
from stepsim.sim.simulate import simulate

EXAMPLES = max(1, settings().max_examples // 4)
"""Each replays a job several times, which takes seconds."""

LARGE: dict[str, Any] = {"hidden_size": 2048, "ffn_hidden_size": 8192, "seq_length": 1024}
"""Kernels that take longer than their launches, so that communication contends with them."""

FABRICS: tuple[dict[str, Any], ...] = (
    {"kind": "rail-optimized"},
    {"kind": "rail-optimized", "nodes_per_leaf": 1, "oversubscription": 2},
    {"kind": "fat-tree", "nodes_per_leaf": 1},
    {"kind": "fat-tree", "nodes_per_leaf": 2, "oversubscription": 4},
    {"kind": "fat-tree", "nodes_per_leaf": 1, "oversubscription": 2, "ecmp": "hashed"},
)

SHARED = FABRICS[3]

OTHER: dict[str, Any] = {"dp": 8, "gpus_per_node": 4, "hidden_size": 1024, "ffn_hidden_size": 4096}
"""A neighbour of two hosts, which reduces all its gradients at the end of its step."""

ANY_GAP = 0.99
"""A tolerance that all bounds meet, however far apart."""

EIGHT_BIT: dict[str, Any] = {"gpu": "H100-SXM5-80GB", "precision": "fp8"}

MAXIMA = ("megatron-core-2025", "nemo-2025", "megatron-bridge-2025", "mlperf-3.0", "mlperf-5.0")
"""Software with TransformerEngine, whose ranks may agree on maxima of 8-bit tensors behind each stage."""

MOST_RANKS = 64 if EXAMPLES > 10 else 32

SHAPES = [
    (cp, tp, pp, dp)
    for cp in (1, 2)
    for tp in (1, 2, 4)
    for pp in (1, 2, 4)
    for dp in (1, 2, 4, 8, 16, 32)
    if 2 <= cp * tp * pp * dp <= MOST_RANKS
]
"""Of context, tensor, pipeline and data parallelism."""


@dataclass(frozen=True, kw_only=True)
class Wrong:
    """A job with its faults. ``neighbours`` are hosts and offset of jobs beside it. It is replayed between
    bounds where it has more than ``classes`` different ranks, from at most so many ``groups`` of replicas,
    if these leave a gap of no more than ``tolerance``.
    """

    job: Scenario
    faults: tuple[str, ...] = ()
    neighbours: tuple[tuple[tuple[int, ...], float], ...] = ()
    classes: int = 1
    groups: int = 8
    tolerance: float | None = None

    def simulated(self, **options: Any) -> Result:
        """Its step, as ``options`` want it."""
        with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
            patch.setattr(conditions, "MOST_CLASSES", self.classes)
            patch.setattr(bounds_module, "MOST_GROUPS", self.groups)
            patch.setattr(bounds_module, "FEW_KINDS", self.groups)
            others = []
            for number, (hosts, offset_s) in enumerate(self.neighbours):
                spec = self.job.cluster
                path = Path(folder) / f"other-{number}.yaml"
                its = {**OTHER, "gpu": spec.gpu_name, "interconnect": "ib-ndr400-x8"}
                path.write_text(yaml.safe_dump(scenario(**its).to_document()))
                others.append({"scenario": str(path), "hosts": list(hosts), "offset": f"{offset_s} s"})
            job = self._beside(others)
            return simulate(job, faults=self.faults, each_fault=False, tolerance=self.tolerance, **options)

    def _beside(self, others: list[dict[str, Any]]) -> Scenario:
        """The job on every other host of a fabric, whose ways up it shares with the others."""
        if not others:
            return self.job
        gpus = [8 * host + gpu for host in range(hosts_of(self.job)) for gpu in range(4)]
        place = {"kind": "explicit", "gpus": gpus}
        return changed(self.job, cluster={"placement": place, "fabric": SHARED, "neighbours": others})


def reduces_maxima(job: Scenario) -> bool:
    """Whether replicas meet behind each virtual stage."""
    return amax_group(job) == AMAX_GROUPS["replicas"] and job.parallelism.dp > 1


def hosts_of(job: Scenario) -> int:
    return max(1, job.world_size // job.cluster.gpus_per_node)


@st.composite
def jobs(draw: st.DrawFn, *, few: bool) -> Scenario:
    """A dense job or one with experts of up to so many ranks, with any sharding that its framework has;
    ``few``: of several replicas that share no link.
    """
    cluster = {"fabric": FABRICS[0] if few else draw(st.sampled_from(FABRICS)), "gpus_per_node": 4}
    try:
        if not few and not draw(st.integers(0, 3)):
            return changed(draw(expert_layouts()), cluster=cluster)
        sizes = draw(st.sampled_from([{}, LARGE]))
        cp, tp, pp, dp = draw(st.sampled_from([one for one in SHAPES if one[3] > 2 or not few]))
        sharded = {"zero": draw(st.sampled_from([0, 1] if few or pp > 1 else [0, 1, 2, 3]))}
        maxima = draw(st.integers(0, 2)) == 0
        kind = {**EIGHT_BIT, "software": draw(st.sampled_from(MAXIMA))} if maxima else {}
        job = draw(layouts(cp=cp, tp=tp, pp=pp, dp=dp, **sharded, **sizes, **cluster, **kind))
        if maxima:
            among = draw(st.sampled_from(["tensor", "replicas", "replicas"]))
            job = changed(job, software={"fp8_scaling": "delayed", "amax_group": among})
    except ValueError:  # its framework has no such sharding, or no such schedule with it
        reject()
    return job


@st.composite
def faults(draw: st.DrawFn, job: Scenario, *, slow: bool) -> tuple[str, ...]:
    """None, a few of any kind, or many slow GPUs; ``slow``: these alone."""
    gpu, node = st.integers(0, job.world_size - 1), st.integers(0, hosts_of(job) - 1)
    if slow or draw(st.booleans()):
        least = 2 * slow
        factors = draw(
            st.dictionaries(gpu, st.sampled_from([1.02, 1.1, 1.3, 2.0]), min_size=least, max_size=12)
        )
        return tuple(f"gpu_throttle rank/{rank} slow_factor={factor}" for rank, factor in factors.items())
    kinds = draw(st.lists(st.sampled_from([line for lines in LINES.values() for line in lines]), max_size=3))
    return tuple(line.format(gpu=draw(gpu), node=draw(node)) for line in kinds)


LAWS = st.one_of(
    st.sampled_from([0.005, 0.02, 0.1]).map(lambda cv: {"normal": {"cv": cv}}),
    st.sampled_from([0.01, 0.05]).map(lambda sigma: {"lognormal": {"sigma": sigma}}),
    st.lists(st.sampled_from([0.9, 0.97, 1.0, 1.03]), min_size=1, max_size=4).map(lambda v: {"values": v}),
    st.sampled_from(preset_names()).map(lambda name: {"preset": name}),
)


@st.composite
def spreads(draw: st.DrawFn, *, slow: bool) -> dict[str, Any] | None:
    """None, or a spread of GPUs, their memory and their links; ``slow``: of links none."""
    speed, both = ("gpu_speed",), ("gpu_speed", "hbm")
    links = () if slow else (("link",), ("gpu_speed", "link"))
    what = draw(st.sampled_from([(), speed, speed, both, ("hbm",), *links]))
    if not what:
        return None
    per, seed = draw(st.sampled_from(["gpu", "host", "rack"])), draw(st.integers(0, 999))
    return {name: draw(LAWS) for name in what} | {"per": per, "seed": seed}


@st.composite
def wrong(draw: st.DrawFn) -> Wrong:
    """A job with something wrong, or that shares its fabric; every other one has replicas of which some GPUs
    are slow, and nothing else, as those have whose step is known between bounds.
    """
    slow = draw(st.booleans())
    job = draw(jobs(few=slow))
    varies = draw(spreads(slow=slow))
    if varies is not None:
        job = changed(job, cluster={"variation": varies})
    neighbours: tuple[tuple[tuple[int, ...], float], ...] = ()
    if not slow and 1 < hosts_of(job) <= 8 and not draw(st.integers(0, 3)):
        hosts = (1, 2 * hosts_of(job) - 1)
        neighbours = ((hosts, draw(st.sampled_from([0.0, 0.001, 0.02]))),)
    return Wrong(
        job=job,
        faults=draw(faults(job, slow=slow)),
        neighbours=neighbours,
        classes=1 if slow else draw(st.sampled_from([1, 8, 256])),
        groups=draw(st.sampled_from([2, 4, 24])),
        tolerance=draw(st.sampled_from([None, ANY_GAP, ANY_GAP, ANY_GAP])),
    )


@pytest.mark.slow
@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
@given(wrong())
def test_a_step_is_that_of_all_ranks_or_bounds_hold_it(drawn: Wrong) -> None:
    try:
        found = drawn.simulated()
    except (NotSupported, ValueError):  # a switch that is not there, or that the job cannot do without
        reject()
    every = drawn.simulated(fold=False)
    known = "replayed whole" if found.step_bounds is None else "between bounds"
    reduced = reduces_maxima(drawn.job)
    event(f"{known}, replicas reduce maxima" if reduced else known)
    if found.step_bounds is None:
        assert found.step_time_s == pytest.approx(every.step_time_s, rel=1e-9)
        return
    assert found.step_bounds.proven
    lower_s, upper_s = found.step_bounds.lower_s, found.step_bounds.upper_s
    assert lower_s <= found.step_time_s <= upper_s
    assert lower_s <= every.step_time_s <= upper_s


def kept(document: dict[str, Any], factors: dict[int, float], groups: int) -> Wrong:
    """A job with these slow ranks, known by few groups of its replicas."""
    slow = tuple(f"gpu_throttle rank/{rank} slow_factor={by}" for rank, by in factors.items())
    return Wrong(job=scenario_from_document(document, "small"), faults=slow, groups=groups)


TWO_OF_EIGHT: dict[str, Any] = {
    "model": {"num_layers": 8, "hidden_size": 2048, "num_attention_heads": 8, "num_query_groups": 4,
        "ffn_hidden_size": 8192, "vocab_size": 512, "mlp": "gelu", "norm": "layernorm",
        "position": "learned", "tied_embeddings": False, "biases": True, "dropout": 0.1},
    "cluster": {"gpu": "A100-SXM4-80GB", "gpus": 32, "gpus_per_node": 4, "interconnect": "ib-ndr400-x8",
        "fabric": "rail-optimized",
        "variation": {"gpu_speed": {"normal": {"cv": 0.005}}, "per": "host", "seed": 0}},
    "parallelism": {"pp": 2, "cp": 2, "zero": 0},
    "training": {"global_batch": 8, "micro_batch": 1, "seq_length": 1024, "precision": "fp32",
        "recompute": "none"},
    "schedule": "1f1b",
    "software": "megatron-2023",
}  # fmt: skip

FOUR_OF_SIXTEEN: dict[str, Any] = {
    "model": {"num_layers": 8, "hidden_size": 2048, "num_attention_heads": 8, "num_query_groups": 4,
        "ffn_hidden_size": 8192, "vocab_size": 512, "mlp": "relu2", "norm": "layernorm",
        "position": "rope", "tied_embeddings": True, "biases": False, "dropout": 0.0},
    "cluster": {"gpu": "A100-SXM4-80GB", "gpus": 64, "gpus_per_node": 4, "interconnect": "ib-ndr400-x8",
        "fabric": "rail-optimized",
        "variation": {"gpu_speed": {"values": [0.9, 0.9, 0.97]}, "hbm": {"values": [0.9, 0.9, 0.97]},
            "per": "gpu", "seed": 139}},
    "parallelism": {"pp": 2, "vpp": 2, "cp": 2, "zero": 0},
    "training": {"global_batch": 32, "micro_batch": 2, "seq_length": 1024, "precision": "fp32",
        "recompute": "full"},
    "schedule": "v-min",
    "software": "megatron-bridge-2025",
}  # fmt: skip

KEPT = {
    "slow": kept(TWO_OF_EIGHT, {9: 1.1, 0: 1.1, 24: 1.3}, 2),
    "slower": kept(TWO_OF_EIGHT, {9: 1.1, 0: 1.3, 24: 2.0}, 2),
    "many": kept(
        FOUR_OF_SIXTEEN,
        {59: 1.1, 49: 2.0, 34: 1.1, 13: 1.3, 2: 2.0, 4: 1.02, 14: 2.0, 10: 1.3, 21: 1.02, 19: 1.3},
        4,
    ),
}
"""Jobs that were outside of their bounds: ranks of context parallelism differ, and from below, too, replicas
were taken to be as slow as the slowest of these.
"""


@cache
def every_rank_s(name: str) -> float:
    """Its step where every rank is replayed, whatever is to be said of bounds."""
    return KEPT[name].simulated(fold=False).step_time_s


@pytest.mark.xdist_group("kept")
@pytest.mark.parametrize("name", KEPT)
@pytest.mark.parametrize("how", ["exact", "proven", "with a margin"])
def test_jobs_that_were_outside_are_within(name: str, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if how == "with a margin":
        monkeypatch.setattr(bounds_module, "MOST_EVENTS", 0)
    drawn = replace(KEPT[name], tolerance=ANY_GAP if how == "proven" else None)
    found, every_s = drawn.simulated(), every_rank_s(name)
    if how == "exact":  # no bounds are as near as they are to be
        assert found.step_time_s == pytest.approx(every_s, rel=1e-9)
        return
    assert found.step_bounds is not None
    assert found.step_bounds.proven is (how == "proven")
    assert found.step_bounds.lower_s <= every_s <= found.step_bounds.upper_s
