"""The collective that options of the command line describe, as the case that the simulator can predict."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..calibration.validation.collectives import CollectiveCase
    from ..hardware.interconnect import Interconnect


def case_on_scenario(kind: str, sizes: list[float], gpus: int, name: str) -> CollectiveCase:
    """The first ``gpus`` of a scenario's machine, alone on its network."""
    from dataclasses import replace

    import numpy as np

    from ..calibration.validation.collectives import CollectiveCase
    from ..sim.lowering.placed_groups import placement_on
    from ..sim.scenario.load import load_scenario
    from ..sim.simulate import build_cluster

    scenario = load_scenario(name)
    machine = build_cluster(scenario)
    if gpus > machine.gpus:
        raise ValueError(f"--gpus {gpus}: {name} has {machine.gpus}")
    each = machine.gpus_per_node
    if gpus > each and gpus % each:
        raise ValueError(f"--gpus {gpus}: whole hosts of {each} GPUs take part, or some of one host")
    part = replace(machine, gpus=gpus, gpus_per_node=min(each, gpus))
    points = tuple((size, 0.0) for size in sizes)
    return CollectiveCase(
        log="",
        kind=kind,
        placement=placement_on(np.arange(gpus), part),
        cluster=part,
        points=points,
        machine=machine,
    )


def case_on(
    kind: str, sizes: list[float], gpus: int, gpu: str, interconnect: str, gpus_per_node: int
) -> CollectiveCase:
    """The case that the options describe; its sizes are not measured."""
    from ..calibration.validation.collectives import CollectiveCase
    from ..hardware.cluster import Cluster
    from ..hardware.fabric import default_fabric
    from ..hardware.gpus import get_gpu
    from ..sim.network.group_placement import placement_in_a_row

    network = _network(interconnect)
    cluster = Cluster(
        gpu=get_gpu(gpu),
        gpus=gpus,
        gpus_per_node=min(gpus_per_node, gpus),
        interconnect=network,
        fabric=default_fabric(network),
    )
    points = tuple((size, 0.0) for size in sizes)
    placement = placement_in_a_row(gpus, cluster.nvlink_domain, cluster.gpus_per_node)
    return CollectiveCase(log="", kind=kind, placement=placement, cluster=cluster, points=points)


def _network(given: str) -> Interconnect:
    """A network of the catalogue by its name, or as described: ``{rate: 200 Gb/s, nics_per_node: 4}``."""
    from pydantic import ValidationError

    from ..hardware.explain import lines
    from ..hardware.fields import FROM_DOCUMENT
    from ..hardware.files.yaml_text import load_yaml
    from ..hardware.interconnect import get_interconnect
    from ..hardware.own_interconnect import OwnInterconnect, interconnect_from

    if not given.lstrip().startswith("{"):
        return get_interconnect(given)
    try:
        own = OwnInterconnect.model_validate(load_yaml(given, "--interconnect"), context=FROM_DOCUMENT)
    except ValidationError as failure:
        raise ValueError(lines("--interconnect", failure, OwnInterconnect)[0]) from None
    return interconnect_from(own)
