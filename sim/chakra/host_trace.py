"""Execution traces of PyTorch's host (JSON): calls of operators, the tensors that they hand on, collectives.

Such a trace has no kernels and no times: what is left to replay are its collectives, those of a group one
after the other, priced on a cluster. Knows the documents; Chakra's own files are read by files.py.

Source: torch/csrc/profiler/standalone/execution_trace_observer.cpp, ParamCommsUtils.hpp (record_param_comms).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...hardware.files import FileError
from .node import COLLECTIVES, ExecutionTrace, NodeType, TraceNode, Value

_KINDS = {name.replace("_", ""): number for number, name in enumerate(COLLECTIVES)}
_KINDS |= {"alltoallv": _KINDS["alltoall"], "alltoallbase": _KINDS["alltoall"]}
_KINDS |= {"allgatherbase": _KINDS["allgather"], "reducescatterbase": _KINDS["reducescatter"]}
_GROUPS = "process_group:init"
_TENSOR = 6
"""Numbers that tell of a tensor: itself, its storage, offset, elements, bytes of one, device."""


def is_host_trace(document: object) -> bool:
    """Whether a document of JSON is such a trace."""
    return isinstance(document, dict) and {"nodes", "schema"} <= document.keys()


def read_host_trace(
    path: Path, document: Mapping[str, Any]
) -> tuple[ExecutionTrace, dict[str, tuple[int, ...]]]:
    """The trace of one rank, and the groups that it lists.

    Raises ValueError naming the file and the node for what is not as PyTorch writes it.
    """
    nodes = document["nodes"]
    if not isinstance(nodes, list) or not nodes:
        raise FileError(path, "an execution trace without a node")
    reader = _Reader(path=path)
    for index, one in enumerate(nodes):
        if not isinstance(one, dict) or type(one.get("id")) is not int or one["id"] < 0:
            raise FileError(path, f"nodes[{index}]: expected a node with an id")
    for one in sorted(nodes, key=lambda one: one["id"]):
        reader.add(one)
    trace = ExecutionTrace(
        file=str(path),
        rank=reader.rank,
        nodes=tuple(reader.nodes),
        version=str(document["schema"])[:40],
        attributes={"schema": str(document["schema"])[:40]},
    )
    return trace, reader.groups


@dataclass(kw_only=True)
class _Reader:
    """``made`` is by storage the node that wrote it last; ``names`` are groups by their backend's number."""

    path: Path
    rank: int = 0
    nodes: list[TraceNode] = field(default_factory=list)
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    made: dict[int, int] = field(default_factory=dict)

    def add(self, one: Mapping[str, Any]) -> None:
        """Read one node of the file; nodes are to come in the order of their numbers."""
        name, values = str(one.get("name", "")), self._values(one, "inputs")
        if _GROUPS in name:
            self._read_groups(values)
        inputs = list(_tensors(values))
        call = one.get("ctrl_deps")
        about: dict[str, Value] = {"is_cpu_op": True, "tid": self._thread(one)}
        kind = NodeType.COMP
        if name == "record_param_comms" and (found := self._collective(values, inputs)) is not None:
            kind, about = NodeType.COMM_COLL, found
        self.nodes.append(
            TraceNode(
                id=one["id"],
                name=name[:200],
                type=kind,
                data_deps=tuple(
                    sorted({self.made[tensor[1]] for tensor in inputs if tensor[1] in self.made})
                ),
                ctrl_deps=(call,) if type(call) is int and call >= 0 else (),
                attributes=about,
            )
        )
        for tensor in _tensors(self._values(one, "outputs")):
            self.made[tensor[1]] = one["id"]

    def _values(self, one: Mapping[str, Any], name: str) -> list[Any]:
        block = one.get(name) or {}
        values = block.get("values", []) if isinstance(block, dict) else None
        if not isinstance(values, list):
            raise FileError(self.path, f"node {one['id']}: {name}: expected an object with a list of values")
        return values

    def _thread(self, one: Mapping[str, Any]) -> int:
        attributes = one.get("attrs")
        for attribute in attributes if isinstance(attributes, list) else ():
            if isinstance(attribute, dict) and attribute.get("name") == "tid":
                value = attribute.get("value")
                return value if type(value) is int else 0
        return 0

    def _read_groups(self, values: list[Any]) -> None:
        """The groups, written as JSON into a text; one without ranks is of all."""
        from orjson import JSONDecodeError, loads

        try:
            groups = loads(values[0]) if values and isinstance(values[0], str) else []
        except JSONDecodeError:
            raise FileError(self.path, "process_group:init: the list of groups is no JSON") from None
        for one in groups if isinstance(groups, list) else ():
            if not isinstance(one, dict):
                continue
            ranks, size, name = one.get("ranks"), one.get("group_size"), str(one.get("pg_name", ""))
            if isinstance(ranks, dict):
                ranks = [int(rank) for rank in ranks if str(rank).isdecimal()]
            if not ranks and type(size) is int and 0 < size <= 1_000_000:
                ranks = list(range(size))
            if isinstance(ranks, list) and ranks and all(type(rank) is int and rank >= 0 for rank in ranks):
                self.groups[name] = tuple(ranks)
            if type(one.get("backend_id")) is int:
                self.names[one["backend_id"]] = name

    def _collective(self, values: list[Any], inputs: list[list[Any]]) -> dict[str, Value] | None:
        """What a call hands in, and to which group; None where it is not a collective (a wait, a message)."""
        said = next((value for value in values if isinstance(value, str)), "")
        number = _KINDS.get(said.lower().replace("_", ""))
        if number is None:
            return None
        numbers = [value for value in values if type(value) is int]
        if len(numbers) >= 3 and 0 <= numbers[2] <= 1_000_000:
            self.rank = numbers[2]
        group = self.names.get(numbers[1], "") if len(numbers) >= 2 else ""
        return {
            "is_cpu_op": False,
            "comm_type": number,
            "comm_size": sum(tensor[3] * tensor[4] for tensor in inputs),
            "pg_name": group,
            "stream": int(group) if group.isdecimal() else 0,
        }


def _tensors(values: object) -> Iterator[list[Any]]:
    """Every tensor in a list of values, however deep."""
    waiting = [values]
    while waiting:
        one = waiting.pop()
        if not isinstance(one, list):
            continue
        numbers = one[: _TENSOR - 1]
        if (
            len(one) == _TENSOR
            and isinstance(one[5], str)
            and all(type(n) is int and n >= 0 for n in numbers)
        ):
            yield one
        else:
            waiting += one
