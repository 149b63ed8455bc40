"""Which NVLink domains a traced process group spans: by the ranks that the trace names for it.

Knows ``Process Group Ranks`` of a kernel and ``pg_config`` of a trace (torch 2.2 or newer). A group of two
ranks may be two GPUs of a host or two hosts: where nothing says which, the group has no place.

Source: torch/csrc/distributed/c10d/ParamCommsUtils.hpp; torch/distributed/distributed_c10d.py (pg_config).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .foreign.values import shown, whole
from .measured import domains_of
from .named_gpus import StatedGpu, chip_of

_HOST = 8  # GPUs of a host, where the trace lists that of its own process alone


@dataclass(frozen=True, kw_only=True)
class TraceGroups:
    """The ranks of every named group; ``world`` is 0 where the trace does not tell it."""

    gpu: StatedGpu
    per_host: int
    world: int
    named: Mapping[str, tuple[int, ...]]

    def domains(self, args: Mapping[str, Any], ranks: int) -> int | None:
        """NVLink domains under a group of ``ranks``; None where its hosts are unknown, or not equal parts."""
        members = listed_ranks(args.get("Process Group Ranks"))
        if not members:
            members = self.named.get(str(args.get("Process Group Name")), ())
        if len(members) == ranks:
            hosts = len({member // self.per_host for member in members})
        elif self.world in (0, ranks) or self.world <= self.per_host:
            hosts = -(-ranks // self.per_host)
        else:
            return None
        return None if ranks % hosts else domains_of(self.gpu, ranks, hosts)


def groups_of(path: Path, document: Mapping[str, Any], gpu: StatedGpu, listed: int) -> TraceGroups:
    """The groups of a trace of ``gpu`` that lists so many GPUs. ValueError for what is not a group."""
    info = document.get("distributedInfo")
    if info is None:
        info = {}
    where = f"{path}: distributedInfo"
    if not isinstance(info, dict):
        raise ValueError(f"{where}: {shown(info)} where a block of fields must stand")
    named = named_groups(where, info)
    world = info.get("world_size")
    return TraceGroups(
        gpu=gpu,
        per_host=listed if listed > 1 else min(_HOST, max(1, chip_of(gpu).nvlink_domain)),
        world=0 if world is None else whole(f"{where}: world_size", world),
        named=named,
    )


def named_groups(where: str, info: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """The ranks of every group that a trace lists (pg_config). ValueError for what is not a group."""
    named: dict[str, tuple[int, ...]] = {}
    groups = info.get("pg_config") or []
    if not isinstance(groups, list):
        raise ValueError(f"{where}: pg_config: {shown(groups)} where a list of groups must stand")
    for index, one in enumerate(groups):
        if not isinstance(one, dict):
            raise ValueError(f"{where}: pg_config[{index}]: {shown(one)} where a group must stand")
        ranks = one.get("ranks") or []
        if isinstance(ranks, list):
            named[str(one.get("pg_name"))] = tuple(
                whole(f"{where}: pg_config[{index}]: ranks", rank) for rank in ranks
            )
    return named


def listed_ranks(value: object) -> tuple[int, ...]:
    """Ranks as ``[0, 1, 2]``, in text or as a list; nothing where torch cut the list short (``...``)."""
    words: list[Any] = value.strip("[]").split(",") if isinstance(value, str) else []
    if isinstance(value, list):
        words = [str(one) for one in value]
    numbers = [word.strip() for word in words]
    if not all(word.isascii() and word.isdigit() and len(word) < 10 for word in numbers):
        return ()
    return tuple(map(int, numbers))
