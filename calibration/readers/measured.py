"""What a file of measurements holds: kernels and collectives of one device, and where they come from.

Knows no file format.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ...hardware.node import node_for
from .measurements import Measurement
from .named_gpus import StatedGpu, chip_of


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCollective:
    """``kind`` of ``bytes`` (as nccl-tests counts) in a group of ``ranks`` took ``seconds``.

    ``domains`` are the NVLink domains that the group spans: its hosts, where no rack is wired.
    """

    kind: str
    ranks: int
    domains: int
    bytes: float
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The content of ``file``. ``gpu`` is the catalogue's key, or the name of one that a user
    describes; ``cpu`` for processes without one.

    ``passed_over`` counts by reason what the file holds and no fit can use; ``facts`` are for people
    (device, versions, date, step times).
    """

    file: str
    gpu: str
    kernels: tuple[Measurement, ...] = ()
    collectives: tuple[MeasuredCollective, ...] = ()
    passed_over: Mapping[str, int] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)


def one_gpu(measured: Sequence[Measured]) -> str:
    """The GPU of all files. ValueError naming the files where there are several."""
    found: dict[str, str] = {}
    for one in measured:
        found.setdefault(one.gpu, one.file)
    if len(found) > 1:
        listed = "; ".join(f"{gpu} in {file}" for gpu, file in found.items())
        raise ValueError(
            f"measurements of several GPUs cannot make one profile: {listed}; fit each by itself"
        )
    return next(iter(found))


def domains_of(gpu: StatedGpu, ranks: int, hosts: int) -> int:
    """NVLink domains under ``ranks`` on ``hosts``: fewer than hosts in wired racks, more between cards.

    >>> domains_of("H100-SXM5-80GB", 16, 2), domains_of("GB200-NVL72", 72, 18)
    (2, 1)
    """
    chip = chip_of(gpu)
    together = node_for(chip).hosts_per_domain
    if together > 1:
        return -(-hosts // together)
    per_host = ranks // hosts
    return hosts * -(-per_host // max(1, min(chip.nvlink_domain, per_host)))
