"""The settings by which a job decides NCCL's choice of algorithms and protocols."""

from __future__ import annotations

from dataclasses import dataclass

from .versions import Version


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclSettings:
    """``algo`` and ``proto`` as NCCL_ALGO and NCCL_PROTO; ``version`` of NCCL, by default that of the logs of
    the architecture."""

    algo: str | None = None
    proto: str | None = None
    version: Version | None = None


NCCL_DEFAULTS = NcclSettings()
