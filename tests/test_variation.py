"""GPUs that differ: laws of their draws, closed forms of the step, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused_at
from small_scenarios import changed, lowered, scenario
from struck_steps import TWIN
from typer.testing import CliRunner

from stepsim.cli.main import app
from stepsim.sim.brief.step import brief_step
from stepsim.sim.degradation.of_scenario import degradation_in
from stepsim.sim.degradation.variation import rank_speeds
from stepsim.sim.plan.space import space_of
from stepsim.sim.result.result import Result
from stepsim.sim.scenario.checks_faults import machine_of
from stepsim.sim.scenario.faults.faults import Domains
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.scenario.variation import SpeedLaw, VariationSpec, preset_names, speeds
from stepsim.sim.simulate import simulate

RUN = scenario(**TWIN)


def varied(**fields: Any) -> Scenario:
    return changed(RUN, cluster={"variation": fields})


def stepped(**fields: Any) -> Result:
    return simulate(varied(**fields))


NORMAL = {"normal": {"cv": 0.02}}


@given(st.integers(0, 10**6), st.sampled_from([{"normal": {"cv": 0.05}}, {"lognormal": {"sigma": 0.05}}]))
def test_draws_have_their_law_and_their_seed(seed: int, law: dict[str, Any]) -> None:
    one = SpeedLaw.model_validate(law)
    found = speeds(one, 4096, seed, 0)
    assert found.mean() == pytest.approx(1.0, abs=5 * 0.05 / 64)
    assert found.std() == pytest.approx(0.05, rel=0.08)
    assert (found == speeds(one, 4096, seed, 0)).all()
    assert (found[:100] != speeds(one, 4096, seed + 1, 0)[:100]).all()


def test_values_are_drawn_from_the_list() -> None:
    found = speeds(SpeedLaw(values=(0.5, 1.0, 2.0)), 300, 1, 0)
    assert set(found.tolist()) == {0.5, 1.0, 2.0}


@pytest.mark.parametrize("name", preset_names())
def test_published_spreads_are_slow_at_times(name: str) -> None:
    found = speeds(SpeedLaw(preset=name), 100_000, 1, 0)
    assert found.min() < 0.95
    assert found.mean() == pytest.approx(1.0, abs=0.005)


@settings(max_examples=6, deadline=None)
@given(speed=st.sampled_from([0.5, 0.9, 1.1, 2.0]))
def test_equal_gpus_of_another_speed_are_as_slow_as_that(speed: float) -> None:
    """All kernels take 1/speed times as long, so the step is no longer than that share, and no shorter."""
    found = stepped(gpu_speed={"values": [speed]}).variation
    assert found is not None
    low, high = sorted((1.0, 1 / speed))
    ratio = found.draws[0].step_time_s / found.equal_step_time_s
    assert low - 1e-9 <= ratio <= high + 1e-9
    assert ratio != pytest.approx(1.0, rel=0.02)
    assert found.slowest == found.mean == speed


def test_whose_gpus_are_alike() -> None:
    """A host has 8 ranks here, a rack two hosts: so many have one speed."""
    for per, alike in (("gpu", 1), ("host", 8), ("rack", 16)):
        slow = degradation_in(lowered(varied(gpu_speed=NORMAL, per=per)), ()).slow
        by_rank = np.array([slow[rank] for rank in range(RUN.world_size)]).reshape(-1, alike)
        assert len(np.unique(by_rank)) == len(by_rank)
        assert (by_rank == by_rank[:, :1]).all()


def test_memory_counts_by_its_share_and_links_are_links() -> None:
    hbm = degradation_in(lowered(varied(hbm={"values": [0.5]})), ())
    assert all(1.0 < slow < 1.6 for slow in hbm.slow.values())
    assert not hbm.link_share
    link = degradation_in(lowered(varied(link={"values": [0.5]})), ())
    assert not link.slow
    assert set(link.link_share.values()) == {0.5}


def test_faults_come_on_top() -> None:
    one = lowered(varied(gpu_speed={"values": [0.8]}))
    assert degradation_in(one, (), None).slow == {}
    fault = simulate(varied(gpu_speed={"values": [0.8]}), faults=["gpu_throttle gpu/3 slow_factor=1.5"])
    assert fault.faults is not None
    assert fault.faults.without_s == pytest.approx([stepped(gpu_speed={"values": [0.8]}).step_time_s])


def test_draws_are_steps_by_the_seeds_behind_the_first() -> None:
    found = stepped(gpu_speed=NORMAL, draws=3, seed=5)
    assert found.variation is not None
    each = [stepped(gpu_speed=NORMAL, seed=seed).step_time_s for seed in (5, 6, 7)]
    assert [one.step_time_s for one in found.variation.draws] == each
    assert found.step_time_s == each[0]
    assert len(set(each)) == 3


def test_speeds_of_a_file_beside_the_scenario(tmp_path: Path) -> None:
    measured = "host,speed\n" + "".join(f"h{i},{0.9 + 0.02 * i}\n" for i in range(4))
    (tmp_path / "measured.csv").write_text(measured)
    document = varied(gpu_speed={"file": "measured.csv"}, per="host").to_document()
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(document))
    ran = CliRunner().invoke(app, ["run", str(tmp_path / "job.yaml"), "--json"])
    assert ran.exit_code in (0, 1), ran.output
    found = json.loads(ran.stdout)["variation"]
    assert found["slowest"] == 0.9
    assert found["mean"] == pytest.approx(0.93)
    assert CliRunner().invoke(app, ["run", str(tmp_path / "job.yaml")]).exit_code in (0, 1)


@pytest.mark.parametrize("text", ["0.9\n", "0.9\nfast\n", "0.9\n1e9\n" * 4])
def test_a_file_that_does_not_have_them(text: str, tmp_path: Path) -> None:
    path = tmp_path / "measured.txt"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"measured\.txt"):
        speeds(SpeedLaw(file=str(path)), 4, 1, 0)


@pytest.mark.parametrize(
    "fields",
    [{}, {"gpu_speed": {}}, {"gpu_speed": {"values": []}}, {"gpu_speed": {**NORMAL, "values": [1.0]}}],
)
def test_one_law_and_something_that_varies(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"Spec|Law"):
        VariationSpec.model_validate(fields)


def test_what_knows_equal_gpus_alone_refuses() -> None:
    given_ = varied(gpu_speed=NORMAL)
    for ask in (brief_step, space_of):
        with refused_at("cluster.variation"):
            ask(given_)


def test_gpus_their_memory_and_their_links_are_drawn_apart() -> None:
    """By one law each has numbers of its own: slow GPUs have no slower memory for it, nor slower links."""
    step = lowered(varied(gpu_speed=NORMAL, hbm=NORMAL, link=NORMAL))
    job = step.plan.scenario
    assert job.cluster.variation is not None
    machine = machine_of(job.cluster, job.parallelism, Domains())
    drawn = rank_speeds(job.cluster.variation, machine, 0, step.plan.placed.gpu)
    assert len({tuple(speed.tolist()) for speed in drawn}) == 3
