"""The machine of an imported run: what its files say of GPUs and hosts, and questions for the rest.

No framework's file says which GPU or which network it runs on; both are asked for, with all else, at once.
"""

from __future__ import annotations

from ....hardware.gpus import get_gpu, gpu_called, gpu_names
from ....hardware.node import node_for
from ..checks import nvlink_domain
from .settings import Setting, Settings

GPUS = ("gpus", "world_size", "num_gpus")
GPU = ("gpu", "gpu_type")
NETWORK = ("interconnect", "network")


def world_size(
    settings: Settings, nodes: Setting | None, per_node: Setting | None, world: Setting | None = None
) -> int | None:
    """GPUs of the job, put into the draft with where they come from; None after asking for them."""
    draft = settings.draft
    for name in GPUS:
        if not _is_variable(settings, name) and settings.given.get(name) is not None:
            gpus = settings.integer(name, least=1)
            settings.put("cluster.gpus", gpus, name)
            return gpus
    if world is not None and per_node is None:
        gpus = _whole(settings, world)
        draft.put("cluster.gpus", gpus, world.origin)
        return gpus
    if nodes is not None and per_node is not None:
        each, hosts = _whole(settings, per_node), _whole(settings, nodes)
        if each is None or hosts is None:
            return None
        draft.put("cluster.gpus", each * hosts, f"{nodes.origin} times {per_node.origin}")
        draft.put("cluster.gpus_per_node", each, per_node.origin)
        return each * hosts
    if per_node is not None and nodes is None and (hosts_given := settings.given.get("nnodes")) is not None:
        nodes = Setting(value=hosts_given, file="--given", name="nnodes")
        return world_size(settings, nodes, per_node)
    draft.ask("gpus", "the files do not say how many GPUs the job has", "64")
    return None


def _is_variable(settings: Settings, name: str) -> bool:
    """Whether what is given under this name is a variable that a script takes: WORLD_SIZE is the number of
    hosts where a platform sets it (Alibaba's PAI-DLC), and of ranks elsewhere."""
    given = settings.given
    return any(key.lower() == name and key.isupper() and key in given.used for key in given.values)


def put_machine(settings: Settings, known_gpu: str | None = None, origin: str = "") -> None:
    """Put the machine of a run into its draft: the type of GPU, GPUs of a host and of an NVLink domain, and
    the network. What neither files nor given facts say becomes a question.

    ``known_gpu`` is the type that the files imply where none is given, and ``origin`` says where from.
    """
    draft = settings.draft
    name = settings.text(*GPU) if any(settings.given.get(one) is not None for one in GPU) else known_gpu
    if name is None:
        draft.ask("gpu", "the files do not say which GPU this runs on", "H100-SXM5-80GB")
    else:
        name = _called(name)
        settings.put("cluster.gpu", name, *GPU, default=origin)
    if settings.given.get("gpus_per_node") is not None:
        settings.put("cluster.gpus_per_node", settings.integer("gpus_per_node"), "gpus_per_node")
    if settings.given.get("gpus_per_domain") is not None:
        settings.put("cluster.gpus_per_domain", settings.integer("gpus_per_domain"), "gpus_per_domain")
    gpus = draft.get("cluster.gpus")
    if any(settings.given.get(one) is not None for one in NETWORK):
        settings.put("cluster.interconnect", settings.text(*NETWORK), *NETWORK)
    elif name is None or (
        gpus is not None and not _inside_nvlink(name, gpus, draft.get("cluster.gpus_per_node"))
    ):
        draft.ask(
            "interconnect",
            "the files do not say which network is between hosts; one of stepsim list interconnects",
            "ib-ndr400-x8",
        )


def put_segment(settings: Settings, segment: Setting | None) -> None:
    """The GPUs of an NVLink domain that the job uses, by the hosts that Slurm takes together out of one rack.

    Source: slurm.schedmd.com sbatch.html, ``--segment``.
    """
    draft = settings.draft
    gpu, gpus = draft.get("cluster.gpu"), draft.get("cluster.gpus")
    if segment is None or gpu not in gpu_names() or not gpus or draft.get("cluster.gpus_per_domain"):
        return
    node = node_for(get_gpu(gpu))
    hosts, each = _whole(settings, segment), draft.get("cluster.gpus_per_node") or node.max_gpus
    if hosts and 1 < hosts <= node.hosts_per_domain and gpus > hosts * each and gpus % (hosts * each) == 0:
        draft.put("cluster.gpus_per_domain", hosts * each, segment.origin)


def _called(name: str) -> str:
    try:
        return gpu_called(name)
    except ValueError:
        return name  # the scenario says which there are


def _inside_nvlink(gpu: str, gpus: int, per_node: int | None) -> bool:
    if gpu not in gpu_names():
        return True  # the name is the first thing to mend
    node = node_for(get_gpu(gpu))
    return gpus <= nvlink_domain(node.hosts_per_domain, per_node or node.max_gpus)


def _whole(settings: Settings, setting: Setting) -> int | None:
    one = Settings(found={"it": setting}, given=settings.given, draft=settings.draft)
    return one.integer("it", least=1)
