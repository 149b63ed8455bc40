"""What one GPU is: peaks, memory levels and link rates, each as its maker states it.

Knows datasheet figures only; what a GPU sustains in practice is in its profile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .carried import CarriedFigure

_COLLECTIVES_AS = {
    "volta": "ampere",
    "blackwell-rtx": "ampere",
    "rubin": "blackwell",
    "cdna2": "cdna3",
    "cdna4": "cdna3",
}
"""Architectures without constants of collectives of their own: Volta, the Blackwell of RTX cards, Rubin, CDNA
2 and 4 are taken like their nearest relative that has some (unverified)."""

PEAK_OF = {"fp8_block": "fp8", "mxfp8": "fp8", "nvfp4": "fp4"}
"""Types in blocks with a scale each, by the type under which a GPU's peak of their GEMMs is listed."""


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU model. All rates are per GPU; link rates are per direction.

    ``peak_flops`` maps a dtype (``fp32``, ``tf32``, ``bf16``, ``fp16``, ``fp8``, ``fp4``) to dense
    FLOP/s without sparsity; a dtype that the tensor cores lack is absent.
    ``nccl_nvlink_bytes_per_s`` is what NCCL counts as usable of the NVLink rate.
    ``nvlink_domain`` is the number of GPUs that NVLink connects (0: none); ``nvls`` says whether
    the NVSwitch reduces in the switch (NVLink SHARP).
    ``idle_w`` is what it draws without work, ``joules_per_flop`` what one 16-bit FLOP of its tensor cores
    takes at the boost clock, all that serves them included; None where nobody measured it. ``draws`` is what
    a FLOP takes on the boards of one cluster, over that.
    ``sources`` says where each group of figures was read. ``profile_of`` is the GPU whose kernels it is taken
    to have, by their efficiencies, where it has no profile of its own. ``short_name`` is what people call its
    profile. ``host`` names the host that it is sold in, where architecture and NVLink domain do not say
    (``node.py``). ``peer_access`` says whether the driver lets GPUs of a host read one another over PCIe.
    ``announced``: not yet sold, so its figures may change. ``carried`` are figures that its description
    leaves out; a GPU of the catalogue has none. ``own``: described by a user. ``same_kernels``: it
    differs from ``profile_of`` in nothing that decides how long a kernel takes, but for its power limit.
    ``called`` are other names, of which several GPUs could begin with the same word.
    """

    name: str
    vendor: str
    architecture: str
    sms: int
    boost_hz: float
    peak_flops: Mapping[str, float] = field(hash=False)
    hbm_bytes: float
    hbm_bytes_per_s: float
    l2_bytes: float
    l2_bytes_per_s: float
    sram_bytes_per_sm: float
    nvlink_bytes_per_s: float
    nccl_nvlink_bytes_per_s: float
    nvlink_domain: int
    nvls: bool
    pcie_bytes_per_s: float
    tdp_w: float
    sources: Mapping[str, str] = field(hash=False)
    idle_w: float = 0.0
    joules_per_flop: float | None = None
    draws: float = 1.0
    profile_of: str = ""
    short_name: str = ""
    host: str = ""
    peer_access: bool = True
    announced: bool = False
    carried: tuple[CarriedFigure, ...] = ()
    own: bool = False
    same_kernels: bool = False
    called: tuple[str, ...] = ()

    @property
    def collectives_as(self) -> str:
        """The architecture whose constants of collectives apply."""
        return _COLLECTIVES_AS.get(self.architecture, self.architecture)

    def has_math(self, dtype: str) -> bool:
        """Whether it multiplies matrices of that type."""
        return PEAK_OF.get(dtype, dtype) in self.peak_flops

    @property
    def measured_as(self) -> str:
        """The name under which its kernels were measured, where anybody measured them."""
        return self.profile_of if self.same_kernels else self.name

    @property
    def link_name(self) -> str:
        """What its maker calls the links between GPUs of a domain, which the fields here call NVLink."""
        return "Infinity Fabric" if self.vendor == "AMD" else "NVLink"
