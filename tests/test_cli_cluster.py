"""``stepsim cluster``, the scenario's fabric and placement, and what the step simulation refuses of them."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from topologies import cluster_of, regular
from typer.testing import CliRunner

from stepsim.cli.main import app
from stepsim.sim.report.topology.picture import topology_svg
from stepsim.sim.report.topology.sheet import folded, load_colour
from stepsim.sim.scenario.load import load_scenario

JOB = "llama3.1-405b-16k"
ROOT = Path(__file__).parents[1]


def ran(*arguments: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return done.exit_code, done.stdout, done.stderr


@functools.cache
def plain_step() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(ran("run", JOB, "--json")[1])
    return found


def changed(*changes: str) -> list[str]:
    return [word for change in changes for word in ("--set", change)]


def test_json_and_table_say_the_same() -> None:
    code, out, _ = ran("cluster", JOB, "--json", *changed("cluster.fabric=meta-24k-roce"))
    facts = json.loads(out)
    assert code == 0
    assert facts["tiers"] == {"leaf": 1536, "spine": 128, "core": 16}
    assert facts["oversubscription"] == pytest.approx({"leaf": 0.5, "spine": 14.0})
    assert (facts["hosts"], facts["fabric_gpus"], facts["placement"]) == (2048, 24_576, "contiguous")
    assert facts["bisection_bytes_per_s"] == pytest.approx(12_288 * 50e9 / 7)
    assert any("Llama 3 Herd" in source for source in facts["sources"])
    code, table, _ = ran("cluster", JOB, *changed("cluster.fabric=meta-24k-roce"))
    assert code == 0
    assert all(
        words in table for words in ("2,048 × 8 GPUs", "1,536", "702.2 Tb/s", "0.5 : 1", "leaf to spine")
    )


@pytest.mark.parametrize("changes", [
    (), ("cluster.fabric=dragonfly",), ("cluster.fabric=torus",),
    ("cluster.fabric={kind: fat-tree, oversubscription: [2, 3]}",),
    ("cluster.fabric={kind: rail-optimized, pxn: true, ecmp: hashed}", "cluster.placement=rail-aware"),
    ("cluster={fabric: selene, gpu: A100-SXM4-80GB, interconnect: ib-hdr200-x8, gpus: 4096}",),
    ("cluster.fabric=meta-24k-infiniband", "cluster.interconnect=ib-ndr400-x8"),
    ("cluster.fabric=alibaba-hpn", "cluster.gpus=8192"),
])  # fmt: skip
def test_every_kind_is_shown_and_drawn(changes: tuple[str, ...], tmp_path: Path) -> None:
    code, out, err = ran("cluster", JOB, "--svg", tmp_path / "c.svg", *changed(*changes))
    assert code == 0, err
    assert "bisection" in out
    assert f"picture: {tmp_path / 'c.svg'}" in err
    picture = (tmp_path / "c.svg").read_text(encoding="utf-8")
    ElementTree.fromstring(picture)
    assert 5_000 < len(picture) < 200_000
    assert ran("cluster", JOB, "--svg", tmp_path / "d.svg", *changed(*changes))[0] == 0
    assert (tmp_path / "d.svg").read_text(encoding="utf-8") == picture


def test_a_custom_graph_is_found_beside_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "graph.yaml").write_text((ROOT / "hardware/graphs/two-hosts.yaml").read_text())
    fabric = "cluster: { gpus: 4, gpus_per_node: 2, fabric: { kind: custom, file: graph.yaml } }"
    (tmp_path / "job.yaml").write_text(
        f"extends: llama3.1-405b-16k\n{fabric}\nparallelism: {{ tp: 1, pp: 2, vpp: 1, "
        "sequence_parallel: false }\n"
        "schedule: 1f1b\n"
    )
    code, out, err = ran("cluster", tmp_path / "job.yaml", "--svg", tmp_path / "c.svg")
    assert code == 0, err
    assert "800 Gb/s per direction" in out
    assert "leaf0" in (tmp_path / "c.svg").read_text()
    (tmp_path / "graph.yaml").write_text("edges: 3")
    code, _, err = ran("cluster", tmp_path / "job.yaml")
    assert code == 2
    assert "cluster.fabric" in err
    assert "holds one list, edges" in err


@pytest.mark.slow
@pytest.mark.xdist_group("the large job on fabrics")
@pytest.mark.parametrize(("changes", "slower"), [
    (("cluster.fabric=meta-24k-roce",), False),
    (("cluster.fabric.oversubscription=[1, 7]",), True),
    (("cluster.fabric.pxn=true", "cluster.fabric.levels=3", "cluster.placement=scattered"), False),
])  # fmt: skip
def test_the_step_runs_on_every_fabric(changes: tuple[str, ...], slower: bool) -> None:
    """Links that cannot bind cost nothing: neither time nor classes."""
    plain = plain_step()
    code, out, err = ran("run", JOB, "--json", *changed(*changes))
    assert code == 0, err
    told = json.loads(out)
    assert (told["step_time_s"] > plain["step_time_s"]) == slower
    assert told["classes"] == plain["classes"]


@pytest.mark.slow
def test_more_classes_than_can_be_replayed_are_refused_with_advice() -> None:
    code, _, err = ran("run", JOB, *changed("cluster.fabric.ecmp=hashed"))
    assert code == 2
    for words in ("16,384 classes of 16,384 ranks", "more than the 4,096", "ecmp to spread", "--max-classes"):
        assert words in err


@pytest.mark.parametrize(("change", "message"), [
    ("cluster.fabric=eos", "Eos is wired with ib-ndr400-x8, not roce-400-x8"),
    ("cluster.fabric={kind: torus, dimensions: [2, 2, 2]}", "hold 8 hosts, but the job has 2048"),
    ("cluster.fabric={kind: custom, file: no.yaml}", "cluster.fabric.file: no.yaml: there is no file"),
    ("cluster.fabric=butterfly", "no kind is called 'butterfly'"),
    ("cluster.placement={kind: explicit, gpus: [0, 1]}", "lists 2 GPUs for 16384 ranks"),
    ("cluster.placement={kind: rail-aware, group: 3}", "group 3 must divide the 8 GPUs"),
    ("cluster.fabric={kind: torus, pxn: true}", "'torus' takes no pxn"),
])  # fmt: skip
def test_mistakes_are_found_when_the_scenario_is_loaded(change: str, message: str) -> None:
    code, _, err = ran("cluster", JOB, "--set", change)
    assert code == 2
    assert message in err


@pytest.mark.slow
def test_what_works_today_gives_the_same_bytes() -> None:
    """Stating the defaults changes nothing but the document."""
    plain = plain_step()
    said = json.loads(
        ran(
            "run",
            JOB,
            "--json",
            *changed(
                "cluster.fabric.pxn=false", "cluster.fabric.ecmp=spread", "cluster.placement=contiguous"
            ),
        )[1]
    )
    for result in (plain, said):
        del result["timing"]
    assert plain["step_time_s"] == said["step_time_s"]
    assert plain["memory_bytes_per_stage"] == said["memory_bytes_per_stage"]


def test_the_document_of_a_scenario_loads_again() -> None:
    from stepsim.sim.scenario.load import scenario_from_document

    scenario = load_scenario(
        JOB,
        [
            "cluster.fabric={kind: fat-tree, oversubscription: [2, 3], levels: 3}",
            "cluster.placement=scattered",
        ],
    )
    assert scenario_from_document(scenario.to_document(), scenario.name).cluster == scenario.cluster
    plain = load_scenario(JOB).to_document()["cluster"]
    assert set(plain["fabric"]) == {"kind", "oversubscription"}
    assert "placement" not in plain


def test_loads_colour_the_links_that_carry_them() -> None:
    topology = regular("rail-optimized", gpus=32, nodes_per_leaf=2)
    name = next(
        topology.links.name(link)
        for link in topology.links_of(0, 9).link.tolist()
        if topology.links.name(link).startswith("leaf 0 -> spine")
    )
    idle = topology_svg(cluster_of(topology), loads={})
    busy = topology_svg(cluster_of(topology), loads={name: 1.0})
    assert idle.count(load_colour(1.0)) + 1 == busy.count(load_colour(1.0))
    assert "load of the busier direction" in busy
    with pytest.raises(ValueError, match=r"loads are 0 \(idle\) to 1"):
        topology_svg(cluster_of(topology), loads={name: 1.5})


def test_a_picture_does_not_grow_with_the_cluster() -> None:
    sizes = [len(topology_svg(cluster_of(regular("rail-optimized", gpus=gpus)))) for gpus in (8192, 131_072)]
    assert np.ptp(sizes) < 0.3 * max(sizes)
    assert folded(3, 3) == [0, 1, 2]
    assert folded(128, 3) == [0, 1, None, 127]


def test_no_picture_without_a_network() -> None:
    code, _, err = ran("cluster", "llama3-8b-h100", "--svg", "/tmp/none.svg")
    assert code == 2
    assert "no switches to draw" in err
