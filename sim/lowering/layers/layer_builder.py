"""Writes blocks: appends kernels and collectives in issue order and keeps track of what they wait for.

Knows streams, the cost of one kernel or collective, and whose layer it writes; knows no transformer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from ....kernels.gemm import LEAST_SMS, HeldSms
from ....kernels.kernel import Attention, Gemm, MemoryBound
from ...network.transfer import Transfer
from ...program.program import Block, Collective, Compute, Op
from .issued import NOTHING, Issued
from .strided import STRIDED, Cast

if TYPE_CHECKING:
    from ...scenario.software.software import Software
    from .local_shape import LocalShape

Kernel = Gemm | Attention | MemoryBound

KIND = {Gemm: "gemm", Attention: "attention", MemoryBound: "memory-bound"}


@dataclass(frozen=True, kw_only=True)
class LoopPrices:
    """Host time of a launch that a loop in C++ issues, in units of a launch from Python: of a cuBLAS
    ``product`` (a GEMM), and of any other ``kernel``; of a ``weight`` whose gradient its GEMM adds up, in a
    module of many; and of all that a fused MLP of experts issues, forward and backward."""

    product: float = 1.0
    kernel: float = 1.0
    weight: float = 1.0
    fused_forward: float = 2.0
    fused_backward: float = 4.0


@dataclass(frozen=True, kw_only=True)
class KernelPricing:
    """What kernels and collectives inside a layer cost on this machine with this software.

    - ``seconds(kernel)`` on an idle GPU; ``transfer(axis, kind, bytes)`` of the group along an axis (tp, cp,
      ...);
    - ``host_s`` per kernel launch, ``host_collective_s`` per collective, ``host_operator_s`` more for each
      operator and TP collective on distributed tensors; ``check_s(axis)`` more where calls are checked first;
    - ``tail_s(gemm, seconds, beside)``: seconds that a GEMM loses while a collective holds SMs (its last wave
      of tiles is late); ``static_schedule(gemm)``: whether its tiles are assigned to all SMs before it begins
      (kernels/gemm.py);
    - ``sm_share``: the share of the SMs that is left to kernels where expert exchanges reserve the others;
    - ``launches_block``: the host issues a kernel when the one before has ended (CUDA_LAUNCH_BLOCKING), and
      the GPU idles meanwhile;
    - ``ungraphed`` and ``eager`` replace (``host_s``, ``host_collective_s``): for the part of a layer that
      CUDA graphs leave out, and for the update, which is never captured. None: they cost as everything else
      does;
    - ``loop``: launches that a loop in C++ issues cost a fraction of those from Python.
    - ``vectorised``: what torch takes one element at a time elsewhere (strided.py), but not this framework.
    """

    seconds: Callable[[Kernel], float]
    transfer: Callable[[str, str, float], Transfer]
    host_s: float
    host_collective_s: float
    host_operator_s: float = 0.0
    check_s: Callable[[str], float] = lambda axis: 0.0
    tail_s: Callable[[Gemm, float, HeldSms], float] = lambda gemm, seconds, beside: 0.0
    static_schedule: Callable[[Gemm], bool] = lambda gemm: False
    sms: int = 0
    sm_share: float = 1.0
    launches_block: bool = False
    ungraphed: tuple[float, float] | None = None
    eager: tuple[float, float] | None = None
    loop: LoopPrices = LoopPrices()
    vectorised: frozenset[str] = frozenset()

    def issued(self, what: str, elements: float = 1.0) -> Issued:
        """Instructions of what torch does with ``elements`` one at a time, by its name in strided.py; none
        where its bytes tell its time."""
        return NOTHING if what in self.vectorised else STRIDED[what] * elements

    def cast_to_fp32(self, element_bytes: int) -> Cast:
        """The cast of an element of so many bytes, which is none where these are FP32 (``Tensor.to`` returns
        what it is given)."""
        if element_bytes >= 4:
            return Cast(0.0, NOTHING, 0)
        return Cast(element_bytes + 4.0, self.issued("cast to FP32"), 1)

    def outside_graphs(self) -> KernelPricing:
        """The pricing of what CUDA graphs of layers leave out."""
        return self._by_host(self.ungraphed)

    def of_update(self) -> KernelPricing:
        """The pricing of the update, which is launched kernel by kernel where layers are CUDA graphs."""
        return self._by_host(self.eager)

    def _by_host(self, figures: tuple[float, float] | None) -> KernelPricing:
        if figures is None:
            return self
        host_s, host_collective_s = figures
        return replace(self, host_s=host_s, host_collective_s=host_collective_s)

    def during_exchanges(self, sms: int) -> KernelPricing:
        """The pricing while expert exchanges reserve ``sms`` SMs, whether they use them or not."""

        def transfer(axis: str, kind: str, size: float) -> Transfer:
            found = self.transfer(axis, kind, size)
            return replace(found, sms=0) if axis == "ep" else found

        return replace(self, transfer=transfer, sm_share=max(LEAST_SMS, 1 - sms / self.sms))


@dataclass(slots=True)
class _InFlight:
    """A collective that runs beside kernels: its op, the SMs that it holds, the seconds that it has left."""

    index: int
    sms: int
    left_s: float


@dataclass(kw_only=True)
class LayerBuilder:
    """Writes one block, for a layer of ``local`` shape by ``software``.

    The next kernel on the compute stream waits for the ops in ``awaited``. ``in_flight`` are the
    tensor-parallel collectives that may still run when it begins. ``waits`` are indices of ops that the host
    issues only when all ops before them have ended.
    """

    costs: KernelPricing
    local: LocalShape
    software: Software
    ops: list[Op] = field(default_factory=list)
    awaited: set[int] = field(default_factory=set)
    in_flight: list[_InFlight] = field(default_factory=list)
    waits: set[int] = field(default_factory=set)

    def on(self, local: LocalShape) -> LayerBuilder:
        """A builder that continues the same block, for a part of the layer with another local shape."""
        return replace(self, local=local)

    def outside_graphs(self) -> LayerBuilder:
        """A builder that continues the same block with kernels that no CUDA graph launches."""
        return replace(self, costs=self.costs.outside_graphs()) if self.costs.ungraphed is not None else self

    def of_attention(self) -> LayerBuilder:
        """A builder that continues the same block with attention's kernels, which graphs may leave out."""
        return self.outside_graphs() if self.software.host.graphs_leave_out_attention else self

    def issued_with_others(self) -> LayerBuilder:
        """A builder that continues the same block with kernels that calls of others issue."""
        return replace(self, costs=replace(self.costs, host_s=0.0, host_operator_s=0.0))

    def kernel(
        self,
        name: str,
        kernel: Kernel,
        *,
        launches: float | None = None,
        rate: float = 1.0,
        parts: int = 1,
        times: int = 1,
        operators: int = 0,
    ) -> int:
        """Append a kernel to the compute stream, behind everything in ``awaited``. Returns its index.

        It costs the host ``launches``, runs at ``rate`` times the usual speed of its shape, is one of
        ``parts`` equal parts (``part``), or runs ``times`` in a row. ``operators``: the operators of torch
        that it consists of, each of which costs the host more on distributed tensors.
        """
        count = launches if launches is not None else getattr(kernel, "launches", 1)
        seconds = self.costs.seconds(kernel) / rate / parts * times
        if not isinstance(kernel, MemoryBound):
            seconds /= self.costs.sm_share
        static = isinstance(kernel, Gemm) and not self._chooses_tiles and self.costs.static_schedule(kernel)
        after = tuple(sorted(self.awaited))
        seconds += self._tail_s(kernel, seconds, after) if parts == 1 else 0.0
        host_s = count * self.costs.host_s + operators * self.costs.host_operator_s
        if self.costs.launches_block:
            seconds, host_s = seconds + host_s, 0.0
        flops, hbm_bytes = kernel.flops / parts * times, kernel.hbm_bytes / parts * times
        work = Compute(seconds, KIND[type(kernel)], flops, hbm_bytes, static)
        self.ops.append(Op(name, "compute", "compute", work, after, host_s=host_s))
        self.awaited.clear()
        return len(self.ops) - 1

    @property
    def _chooses_tiles(self) -> bool:
        """Whether GEMMs choose their tiles for the SMs that collectives leave free, as TransformerEngine's do
        with userbuffers (module/base.py, ``_math_sms``)."""
        exchange = self.software.exchange
        overlaps = exchange.tp_comm_overlap and exchange.tp_overlap_style == "userbuffers"
        return overlaps and self.local.tp > 1 and self.local.sequence_parallel

    def _tail_s(self, kernel: Kernel, seconds: float, after: tuple[int, ...]) -> float:
        """Seconds that a GEMM loses to the collective in flight that holds most SMs. Advances all collectives
        in flight by the time of the kernel."""
        if not self.in_flight:
            return 0.0
        self.in_flight[:] = [one for one in self.in_flight if one.index not in after]
        tail_s = 0.0
        if self.in_flight and isinstance(kernel, Gemm):
            most = max(self.in_flight, key=lambda one: (one.sms, one.left_s))
            tail_s = self.costs.tail_s(kernel, seconds, HeldSms(most.sms, most.left_s))
        for one in self.in_flight:
            one.left_s -= seconds + tail_s
        self.in_flight[:] = [one for one in self.in_flight if one.left_s > 0.0]
        return tail_s

    def part(self, name: str, whole: Gemm, parts: int) -> int:
        """Append one of the ``parts`` GEMMs into which ``whole`` is cut along its rows.

        They are issued on alternating streams, so that the first tiles of one fill the SMs that the last wave
        of another leaves free: together they take as long as the whole. One call issues all
        (TransformerEngine userbuffers: split_overlap_ag, split_overlap_rs, _stream_compute).
        """
        return self.kernel(name, whole, launches=self.gemm_launches(parts) / parts, parts=parts)

    def gemm_launches(self, calls: int) -> float:
        """Host cost, in launches, of a linear module's forward or gradient that issues ``calls`` GEMMs by one
        call."""
        return self.software.host.launches_per_product + (calls - 1) * self.costs.loop.product

    def hook_launches(self, weights: int) -> float:
        """Host cost, in launches, of what follows the gradients of so many ``weights``: a hook adds each to
        the main gradient by a kernel, unless its GEMM has done so."""
        fused = self.software.kernels.fused_wgrad_accumulation and weights > 1
        return weights * self.costs.loop.weight if fused else weights

    def function(
        self,
        name: str,
        hbm_bytes: float,
        *,
        launches: int = 1,
        operators: int = 0,
        instructions: Issued = NOTHING,
    ) -> int:
        """Append a memory-bound function of a layer's forward that is no module of its own, in so many
        ``launches``."""
        counted = launches - 1 + self.software.host.launches_per_function
        return self.memory(
            name,
            hbm_bytes,
            launches=launches,
            operators=operators,
            counted=counted,
            instructions=instructions,
        )

    def memory(
        self,
        name: str,
        hbm_bytes: float,
        *,
        launches: int = 1,
        flops: float = 0.0,
        operators: int = 0,
        counted: float | None = None,
        parts: float = 0.0,
        instructions: Issued = NOTHING,
        in_turn: float = 0.0,
        numbers: int = 0,
    ) -> int:
        """Append a memory-bound kernel that moves ``hbm_bytes`` in ``launches`` launches. The host pays for
        ``counted`` launches (None: for all of these). ``parts``, ``instructions``, ``in_turn`` and
        ``numbers`` are as in MemoryBound."""
        kernel = MemoryBound(
            hbm_bytes=hbm_bytes,
            flops=flops,
            launches=launches,
            parts=parts,
            instructions=instructions.nvidia,
            vector_instructions=instructions.amd,
            in_turn=in_turn,
            numbers=numbers,
        )
        return self.kernel(name, kernel, launches=counted, operators=operators)

    def tp(
        self,
        name: str,
        kind: str,
        payload_bytes: float,
        *,
        after: int | None = None,
        wait: bool = True,
        launches: float | None = None,
    ) -> int:
        """Append a TP collective; see ``collective``.

        GEMMs lose their last tiles to it unless they choose their tiles for the SMs that it leaves free.
        Where the software runs collectives and kernels in turn, the next kernel waits for it even with
        ``wait`` false.
        """
        exchange = self.software.exchange
        wait = wait or exchange.collectives_in_turn
        index = self.collective("tp", name, kind, payload_bytes, after=after, wait=wait, launches=launches)
        work = self.ops[index].work
        if isinstance(work, Collective) and work.transfer.sms and not wait and not self._chooses_tiles:
            self.in_flight.append(_InFlight(index, work.transfer.sms, work.transfer.solo_s))
        return index

    def collective(
        self,
        axis: str,
        name: str,
        kind: str,
        payload_bytes: float,
        *,
        after: int | None = None,
        wait: bool = True,
        category: str = "",
        launches: float | None = None,
    ) -> int:
        """Append a collective of the group along ``axis``, on that axis's stream. Returns its index.

        It counts as communication of ``category`` (default: the axis), and costs the host one call, or
        ``launches`` launches. It starts behind op ``after`` (default: the last one on the compute stream) and
        everything in ``awaited``. With ``wait`` the next kernel waits for it; otherwise the caller joins it
        later.
        """
        start = self.last_kernel() if after is None else after
        transfer = self.costs.transfer(axis, kind, payload_bytes)
        call_s = self.costs.host_collective_s if launches is None else launches * self.costs.host_s
        host_s = call_s + self.costs.check_s(axis)
        host_s += self.costs.host_operator_s if axis == "tp" else 0.0
        if self.costs.launches_block:
            transfer, host_s = replace(transfer, latency_s=transfer.latency_s + host_s), 0.0
        work = Collective(kind, axis, transfer)
        deps = tuple(sorted({*self.awaited, *(() if start < 0 else (start,))}))
        stream = axis.partition(".")[0]  # cp.ring and cp.heads are groups of the same stream
        self.ops.append(Op(name, stream, category or stream, work, deps, host_s=host_s))
        index = len(self.ops) - 1
        if wait or self.costs.launches_block:
            self.join(index)
        return index

    def join(self, *indices: int) -> None:
        """Make the next kernel of the compute stream wait for these ops, besides those that it waits for
        already."""
        self.awaited.update(indices)

    def last_kernel(self) -> int:
        """Index of the last op on the compute stream, -1 where there is none."""
        for index in range(len(self.ops) - 1, -1, -1):
            if self.ops[index].stream == "compute":
                return index
        return -1

    def host_waits(self) -> None:
        """Make the host wait here until every op of the block so far has ended."""
        if self.ops and self.costs.host_s:
            self.waits.add(len(self.ops))

    def issued_ahead(self, first: int) -> None:
        """Move the issue of the ops from ``first`` on to before the host's last wait.

        The op in front of that wait takes over their host cost; they run behind it as soon as they may.
        """
        cut = max(self.waits, default=0)
        if 0 < cut <= first:
            borne, moved = self.ops[cut - 1], self.ops[first:]
            self.ops[cut - 1] = borne._replace(host_s=borne.host_s + sum(op.host_s for op in moved))
            self.ops[first:] = [op._replace(host_s=0.0) for op in moved]

    def block(self, name: str) -> Block:
        """The finished block, at whose end all streams join: nothing in ``awaited`` outlasts it."""
        within = [cut for cut in sorted(self.waits) if cut < len(self.ops)]
        if not within:  # of most blocks, which are not cut
            return Block(name, tuple(self.ops))
        parts = tuple(
            Block(f"host has waited: {name}" if first else name, _since(self.ops[first:last], first))
            for first, last in pairwise([0, *within, len(self.ops)])
        )
        return Block(name, tuple(self.ops), parts)


def _since(ops: Sequence[Op], first: int) -> tuple[Op, ...]:
    """The ops of a part of a block that begins at op ``first``. What they wait for before that has ended."""
    return tuple(op._replace(after=tuple(i - first for i in op.after if i >= first)) for op in ops)
