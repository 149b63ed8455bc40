"""Logs of nccl-tests, and tables of one host's collectives, as the cases that the simulator can predict: who
reads and who predicts do not meet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..calibration.fit.collective_constants import Observed
    from ..calibration.fit.collectives import SizeSweep
    from ..calibration.readers.nccl_log import Measurements
    from ..calibration.readers.nccl_tables import TableSweep
    from ..calibration.validation.collectives import CollectiveCase
    from ..hardware.files import Refusal


@dataclass(frozen=True, kw_only=True)
class Logs:
    """``cases`` of the logs that can be used; ``unstated`` names those of settings that they do not state;
    ``refused`` are the files that cannot be used. ``tables`` are the cases of tables among the files, of one
    host each, of which fits see a part."""

    cases: tuple[CollectiveCase, ...]
    unstated: tuple[str, ...]
    refused: tuple[Refusal, ...]
    tables: tuple[CollectiveCase, ...] = ()


def case_of(log: Measurements, gpu: str | None = None, interconnect: str | None = None) -> CollectiveCase:
    """The case of a log; ``gpu`` and ``interconnect`` replace what it says of them."""
    from dataclasses import replace

    from ..calibration.readers.named_gpus import chip_of
    from ..calibration.readers.nccl_system import forced_choice, system_of
    from ..calibration.validation.collectives import CollectiveCase
    from ..hardware.cluster import Cluster
    from ..hardware.fabric import default_fabric
    from ..sim.network.group_placement import placement_in_a_row
    from ..sim.network.nccl.settings import NCCL_DEFAULTS, NcclSettings
    from ..sim.network.nccl.versions import parse_version

    system = system_of(log, gpu, interconnect)
    network = system.interconnect
    cluster = Cluster(
        gpu=chip_of(system.gpu),
        gpus=log.ranks,
        gpus_per_node=log.gpus_per_node,
        interconnect=network,
        fabric=replace(default_fabric(network), nodes_per_rack=system.nodes_per_rack),
    )
    algorithm, protocol = forced_choice(log)
    nccl = NCCL_DEFAULTS
    if stated := log.stated.get("nccl") or _dotted(log.nccl):
        try:
            nccl = NcclSettings(version=parse_version(stated.split()[0]))
        except ValueError as error:
            raise ValueError(f"{log.file}: ## nccl: {error}") from None
    return CollectiveCase(
        log=log.log,
        kind=log.kind,
        placement=placement_in_a_row(log.ranks, cluster.nvlink_domain, cluster.gpus_per_node),
        cluster=cluster,
        points=tuple((float(row.bytes), row.seconds) for row in log.rows),
        algorithm=algorithm,
        protocol=protocol,
        nccl=nccl,
    )


def _dotted(version: str | None) -> str | None:
    """A version that NCCL or the log's source gives as ``2.23.4``; None for the number of a library."""
    return version if version and "." in version else None


def read_logs(files: Sequence[Path], gpu: str | None = None, interconnect: str | None = None) -> Logs:
    """The logs in ``files``, archives opened, and the tables among them; ``gpu`` and ``interconnect`` replace
    what logs say of them.

    Raises ValueError for names that are unknown, two logs of one name, or where not one log can be used.
    """
    from ..calibration.readers.nccl_log import read_log
    from ..calibration.readers.nccl_system import tuned
    from ..calibration.readers.nccl_tables import is_collective_table, read_collective_table
    from ..hardware.files import read_opened
    from ..hardware.gpus import get_gpu
    from ..hardware.interconnect import get_interconnect

    if gpu is not None:
        get_gpu(gpu)
    if interconnect is not None:
        get_interconnect(interconnect)

    def read(path: Path, content: bytes | None) -> tuple[Measurements, CollectiveCase]:
        log = read_log(path, content)
        return log, case_of(log, gpu, interconnect)

    tables = [file for file in files if file.is_file() and is_collective_table(file)]
    if tables and (gpu or interconnect):
        raise ValueError(f"{tables[0]}: names the GPU of every line; leave out --gpu and --interconnect")
    others = [file for file in files if file not in tables]
    used, refused = read_opened(others, read) if others else ([], ())
    twice = [name for name, times in Counter(log.log for log, _ in used).items() if times > 1]
    if twice:
        raise ValueError(f"two logs are named {twice[0]}; rename one")
    return Logs(
        cases=tuple(case for _, case in used),
        unstated=tuple(log.log for log, _ in used if tuned(log)),
        refused=tuple(refused),
        tables=tuple(_of_table(sweep) for file in tables for sweep in read_collective_table(file)),
    )


def _of_table(sweep: TableSweep) -> CollectiveCase:
    """The case of a sweep on one host; cards without NVLink meet over its PCIe."""
    from ..calibration.validation.collectives import CollectiveCase
    from ..hardware.cluster import Cluster
    from ..hardware.fabric import default_fabric
    from ..hardware.gpus import get_gpu
    from ..hardware.interconnect import get_interconnect
    from ..sim.network.group_placement import placement_in_a_row
    from ..sim.network.nccl.settings import NCCL_DEFAULTS, NcclSettings
    from ..sim.network.nccl.versions import parse_version

    gpu = get_gpu(sweep.gpu)
    network = get_interconnect("nvlink-only" if gpu.nvlink_domain >= sweep.ranks else "ib-ndr400-x8")
    cluster = Cluster(
        gpu=gpu,
        gpus=sweep.ranks,
        gpus_per_node=sweep.ranks,
        interconnect=network,
        fabric=default_fabric(network),
    )
    return CollectiveCase(
        log=sweep.name,
        kind=sweep.kind,
        placement=placement_in_a_row(sweep.ranks, cluster.nvlink_domain, cluster.gpus_per_node),
        cluster=cluster,
        points=sweep.points,
        nccl=NcclSettings(version=parse_version(sweep.nccl)) if sweep.nccl else NCCL_DEFAULTS,
    )


def of_tables(tables: Sequence[CollectiveCase], *, hidden: bool) -> list[CollectiveCase]:
    """The part of each case that fits do not see (``hidden``), or see."""
    from dataclasses import replace

    from ..calibration.readers.nccl_tables import unseen

    return [
        replace(
            case,
            points=tuple(one for one in case.points if unseen(one[0], case.placement.ranks) == hidden),
        )
        for case in tables
    ]


def learnt_of_tables(tables: Sequence[CollectiveCase]) -> list[CollectiveCase]:
    """What a fit may learn from tables: the part that it may see, of GPUs joined by NVLink whose logs are of
    the same years as the table; cards over PCIe differ between hosts."""
    return [
        case
        for case in of_tables(tables, hidden=False)
        if case.points
        and case.cluster.nvlink_domain >= case.placement.ranks
        and case.cluster.gpu.architecture in ("hopper", "blackwell")
    ]


def observed(cases: Sequence[CollectiveCase], left_out: Sequence[str]) -> list[Observed[CollectiveCase]]:
    """What a fit may learn from: all cases but those named."""
    from ..calibration.fit.collective_constants import Observed

    return [
        Observed(name=case.log, case=case, seconds=tuple(seconds for _, seconds in case.points))
        for case in cases
        if case.log not in left_out
    ]


def sweep_of(case: CollectiveCase) -> SizeSweep:
    """The case as calibration knows it, with what its links allow at most."""
    from ..calibration.fit.collectives import SizeSweep, ceiling_bytes_per_s

    placement, cluster = case.placement, case.cluster
    return SizeSweep(
        kind=case.kind,
        architecture=cluster.gpu.architecture,
        tier="node" if placement.domains == 1 else cluster.interconnect.kind,
        ranks=placement.ranks,
        domains=placement.domains,
        ceiling_bytes_per_s=ceiling_bytes_per_s(case.kind, placement.ranks, placement.domains, cluster),
        points=case.points,
    )
