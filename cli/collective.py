"""``stepsim collective``: what one collective costs on a cluster, alone on an idle network."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..hardware.limits import MOST_GPUS
from .collective_cases import case_on, case_on_scenario
from .options import JsonOption, refuse_where
from .output import PICTURE_NAME, PICTURES, console, echo_json, output_file, save_picture, there, wrote

if TYPE_CHECKING:
    from ..calibration.validation.collectives import CollectiveCase
    from ..sim.report.collective import CollectiveCost

GPU, INTERCONNECT = "H100-SXM5-80GB", "ib-ndr400-x8"
SIZE, RANKS = "1GB", 64

KindArgument = Annotated[
    str | None,
    typer.Argument(metavar="KIND", help="all_reduce, all_gather, all_to_all, ...; of a --log its own."),
]
SizeOption = Annotated[
    str, typer.Option("--size", metavar="BYTES", help="Payload as nccl-tests counts it, such as 1GB.")
]
GpusOption = Annotated[int, typer.Option("--gpus", min=2, max=MOST_GPUS, help="Ranks, one a GPU.")]
ClusterOption = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="SCENARIO",
        help="On the machine of a scenario, the first --gpus of it. Where its fabric can be full, "
        "all_to_all takes at most 2,048 ranks.",
    ),
]
GpuOption = Annotated[
    str | None,
    typer.Option("--gpu", metavar="NAME", help="GPU of the catalogue.", show_default=GPU),
]
InterconnectOption = Annotated[
    str | None,
    typer.Option(
        "--interconnect",
        metavar="NAME|{...}",
        help="Network of the catalogue, or its figures: {rate: 200 Gb/s, nics_per_node: 4}.",
        show_default=INTERCONNECT,
    ),
]
GpusPerNodeOption = Annotated[
    int | None,
    typer.Option(
        "--gpus-per-node",
        min=1,
        max=MOST_GPUS,
        help="GPUs of a host that take part.",
        show_default="all of a host",
    ),
]
AlgorithmOption = Annotated[
    str | None,
    typer.Option(
        "--algorithm",
        metavar="NAME",
        help="ring, tree, nvls, sharp, pat, halving-doubling, ...; or a list as in NCCL_ALGO.",
    ),
]
ProtocolOption = Annotated[
    str | None,
    typer.Option("--protocol", metavar="NAME", help="LL, LL128 or Simple; or a list as in NCCL_PROTO."),
]
NcclOption = Annotated[
    str | None,
    typer.Option("--nccl", metavar="VERSION", help="Whose tuning tables choose, such as 2.28.9."),
]
SweepOption = Annotated[bool, typer.Option("--sweep", help="Every power of two up to the size.")]
LogOption = Annotated[
    Path | None,
    typer.Option("--log", metavar="LOG", help="Sweep the system and sizes of this nccl-tests log."),
]
CalibrationOption = Annotated[
    Path | None,
    typer.Option(
        "--calibration", metavar="PROFILE.yaml", help="Predict by the curves of your own measurements."
    ),
]
PictureOption = Annotated[
    Path | None,
    typer.Option("--picture", "--svg", metavar=PICTURE_NAME, help="Write the sweep as a picture."),
]


def collective(
    kind: KindArgument = None,
    size: SizeOption = SIZE,
    gpus: GpusOption = RANKS,
    cluster: ClusterOption = None,
    gpu: GpuOption = None,
    interconnect: InterconnectOption = None,
    gpus_per_node: GpusPerNodeOption = None,
    algorithm: AlgorithmOption = None,
    protocol: ProtocolOption = None,
    nccl: NcclOption = None,
    sweep: SweepOption = False,
    log: LogOption = None,
    calibration: CalibrationOption = None,
    svg: PictureOption = None,
    as_json: JsonOption = False,
) -> None:
    """Predict one collective: its time, bandwidths, algorithm, protocol, and the link that binds.

    Algorithm and protocol are those that NCCL itself would choose, unless you name them. The second table
    counts steps, and bytes through a GPU's NVLink and its share of the NICs for each byte of the payload.

    With --calibration, by a profile of your own, on its GPU. With --log, KIND and the system are the log's,
    and the measured times stand beside the predicted ones.
    """
    output_file("--picture", svg, PICTURES, [log] if log else [])

    from ..hardware.collective_kinds import kind_called

    if log:
        _refuse_with_log(cluster, calibration, sweep, gpus_per_node, (size, gpus) != (SIZE, RANKS))
        case = _case_of_log(log, kind, gpu, interconnect)
        _show(_as_forced(case, algorithm, protocol, nccl), measured=True, svg=svg, as_json=as_json)
        return
    if kind is None:
        raise ValueError("KIND is missing: a collective, such as all_reduce, or a --log, which is of one")
    kind = kind_called(kind)

    per_host = gpus_per_node or _host_of(gpu or GPU)
    payload = _payload_of(size)
    sizes = _powers_of_two(payload) if sweep or svg else [payload]
    if calibration:
        _refuse_with_calibration(cluster, svg, algorithm, protocol, nccl)
        from .own_collective import show_own

        there("--calibration", [calibration])
        show_own(kind, sizes, gpus, gpu, interconnect or INTERCONNECT, per_host, calibration, as_json=as_json)
        return
    if cluster:
        machine = gpu, gpus_per_node, interconnect
        refuse_where({"--cluster: the scenario names GPU, hosts and interconnect": any(machine)})
        case = case_on_scenario(kind, sizes, gpus, cluster)
    else:
        case = case_on(kind, sizes, gpus, gpu or GPU, interconnect or INTERCONNECT, per_host)
    _show(_as_forced(case, algorithm, protocol, nccl), measured=False, svg=svg, as_json=as_json)


def _refuse_with_log(*others: object) -> None:
    """Refuse what a log says itself."""
    why = "--log: the log says ranks, hosts and sizes; leave out --size, --gpus, --gpus-per-node, "
    refuse_where({f"{why}--sweep, --cluster and --calibration": any(others)})


def _refuse_with_calibration(cluster: str | None, *choices: object) -> None:
    """Refuse a machine and ``choices`` of NCCL's beside curves of the user's own."""
    what = "--calibration: own curves have no picture, algorithm, protocol or version to choose"
    refuse_where({"--cluster: a profile is of a machine of its own": cluster, what: any(choices)})


def _payload_of(size: str) -> float:
    """Bytes, of a quantity or a plain number of them."""
    from ..hardware.fields import MOST_BYTES
    from ..hardware.quantities import quantity_of

    payload = quantity_of("--size", f"{size} B" if size.isdecimal() else size, "bytes")
    if payload < 1:
        raise ValueError(f"--size {size}: must be at least one byte")
    if payload > MOST_BYTES:
        raise ValueError(f"--size {size}: must be {MOST_BYTES:g} bytes at most")
    return payload


def _case_of_log(log: Path, kind: str | None, gpu: str | None, interconnect: str | None) -> CollectiveCase:
    """What an nccl-tests log measured; ``gpu`` and ``interconnect`` stand for what it says of them.

    Raises:
        ValueError: the log cannot be used, or is of another collective than ``kind``.
    """
    from ..calibration.readers.nccl_log import read_log
    from ..hardware.collective_kinds import kind_called
    from .collective_logs import case_of

    there("--log", [log])
    case = case_of(read_log(log), gpu, interconnect)
    if kind is not None and case.kind != kind_called(kind):
        raise ValueError(f"{log}: is of {case.kind}, not {kind_called(kind)}")
    return case


def _as_forced(
    case: CollectiveCase, algorithm: str | None, protocol: str | None, nccl: str | None
) -> CollectiveCase:
    """The case with what the user forces: one name of ours, or a list for NCCL to choose from."""
    from dataclasses import replace

    from ..sim.network.nccl.choice import check_variable

    settings = case.nccl
    if nccl is not None:
        settings = replace(settings, version=_version(nccl))
    if algorithm is not None and set(",^:;") & set(algorithm):
        check_variable("nccl_algo", algorithm)
        settings, algorithm = replace(settings, algo=algorithm), None
    if protocol is not None and set(",^:;") & set(protocol):
        check_variable("nccl_proto", protocol)
        settings, protocol = replace(settings, proto=protocol), None
    return replace(
        case, algorithm=algorithm or case.algorithm, protocol=protocol or case.protocol, nccl=settings
    )


def _version(text: str) -> tuple[int, int]:
    """A version of NCCL that the tuning model knows."""
    from ..sim.network.nccl.versions import FIRST, LAST, parse_version

    version = parse_version(text)
    if tuple(int(number) for number in text.split("+")[0].split(".")[:2]) != version:
        known = " to ".join(".".join(map(str, one)) for one in (FIRST, LAST))
        raise ValueError(f"--nccl {text}: not known; known versions are {known}")
    return version


def _show(
    case: CollectiveCase,
    *,
    measured: bool,
    svg: Path | None,
    as_json: bool,
) -> None:
    from functools import cache

    from ..sim.fold.lone_collective import fullest_link
    from ..sim.report.collective import collective_cost

    machine, ranks = case.machine, case.placement.ranks
    limit = None if machine is None else cache(lambda pattern: fullest_link(pattern, ranks, machine))
    costs = [
        collective_cost(
            case.kind,
            size,
            case.placement,
            case.cluster,
            algorithm=case.algorithm,
            protocol=case.protocol,
            nccl=case.nccl,
            limit=limit,
        )
        for size, _ in case.points
    ]
    times = [seconds for _, seconds in case.points] if measured else None
    if svg:
        from ..calibration.validation.collective_picture import collective_svg

        save_picture(svg, collective_svg(costs, times, case.log if measured else None))
    if as_json:
        documents = _documents(costs, times)
        echo_json(documents[0] if len(documents) == 1 else documents)
    else:
        from ..calibration.validation.collective_grids import cost_grid, ways_grid
        from ..calibration.validation.tables import print_grid

        print_grid(cost_grid(costs, times), console())
        print_grid(ways_grid(costs), console())
    if svg:
        wrote("picture", svg)


def _documents(costs: list[CollectiveCost], times: list[float] | None) -> list[dict[str, Any]]:
    from ..sim.report.collective import INTERFACE

    documents: list[dict[str, Any]] = [{key: getattr(cost, key) for key in INTERFACE} for cost in costs]
    for document, seconds in zip(documents, times or (), strict=False):
        document["measured_s"] = seconds
    return documents


def _host_of(gpu: str) -> int:
    """GPUs of a host, as they are sold."""
    from ..hardware.gpus import get_gpu
    from ..hardware.node import node_for

    return node_for(get_gpu(gpu)).max_gpus


def _powers_of_two(up_to: float) -> list[float]:
    """8 bytes, 16, ... as nccl-tests sweeps with ``-b 8 -f 2``, up to the size."""
    sizes, size = [], 8.0
    while size < up_to:
        sizes.append(size)
        size *= 2
    return [*sizes, up_to]
