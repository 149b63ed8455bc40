"""Data parallelism: which gradients are reduced when, and how updated parameters come back.

Without overlap, everything is reduced after the last backward. With it, Megatron's and DDP's
bucket rules apply: buckets fill in the order in which gradients become ready during the last
microbatch's backward, and each is reduced as soon as it is full. Pipeline ranks that Megatron
aligns reduce a whole chunk at once, in the same slot on every rank.

A matrix of billions of parameters fills hundreds of buckets in one instant. Their reductions follow one
another on one stream, so that all of them are one op of several calls, but where each has another behind it.

References:
    Megatron-LM distributed_data_parallel.py, schedules.py (grad_sync_func, align_grad_reduce).
    Rajbhandari et al. 2019, arXiv:1910.02054 (ZeRO).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ....kernels.kernel import MemoryBound
from ...network.transfer import Transfer, in_turn, several
from ...program.program import Collective, Compute
from ...program.program_builder import ProgramBuilder
from ..layers.layer_builder import KernelPricing

if TYPE_CHECKING:
    from .offload import Offload


COPY_HOST_S = 1.1e-5
"""Host time of a copy in a loop of Python, not of a module's launch, which autograd and its hooks come with:
NVIDIA/dgxc-benchmarking cpu_overhead prints 11 to 18 us for a tiny operation of torch in a loop."""


@dataclass(kw_only=True)
class Gradients:
    """Reduces one rank's gradients over its data-parallel group.

    ``transfer(kind, bytes)`` prices a collective of the group; ``sharded`` reduces with reduce_scatter
    (ZeRO-1), else all_reduce. ``element_bytes`` is the gradient's size in memory, ``wire_bytes`` its size on
    the wire; where they differ, casts go with every reduction. Where the ``shards`` of a group are not all of
    data parallelism, ``over_replicas(bytes)`` prices what follows: an all_reduce of equal shards (Megatron's
    --num-distributed-optimizer-instances). ``check_s`` is what a check adds for the host
    (docs/decisions/0011-jobs-that-checked-their-collectives.md). ``uncut``: buckets close with the parameter
    that fills them (torch's DDP, Megatron core); of a layer of so many elements, those of its parameters, in
    the order of their gradients. An all_reduce of a bucket is then a group of NCCL's, a parameter after the
    other (ProcessGroupNCCL.cpp, allreduce_coalesced), or one message where the bucket is ``flat`` (Megatron
    core's buffer). ``listed`` parameters, ``listed_bytes`` together, come back as lists: flat buffers are
    made of them, and copied back one parameter and one rank at a time, which takes the host ``copy_host_s``
    each. ``nan_check``: the host has a bucket reduced when it knows that its norm is a number; each of the
    ``last_buckets``, which are reduced together.
    ``scaled_first``: a bucket is divided by its ranks before it is reduced, not its sum afterwards.
    ``in_turn``: what is issued behind a reduction waits for it. ``copied_back``: what was reduced is copied
    from buckets into gradients (torch's DDP without gradient_as_bucket_view: reducer.cpp,
    finalize_bucket_dense); the copy into buckets divides (mark_variable_ready_dense), which is counted as
    scaling. ``owners``: so many ranks hold whole parameters, ``listed_bytes`` together, and broadcast what
    they updated in turn; a gather of a part has its share of the broadcasts.
    """

    communicator: str
    transfer: Callable[[str, float], Transfer]
    element_bytes: int
    wire_bytes: int
    bucket_elements: float
    sharded: bool
    costs: KernelPricing
    shards: int = 1
    over_replicas: Callable[[float], Transfer] | None = None
    check_s: float = 0.0
    uncut: Mapping[float, tuple[float, ...]] | None = None
    flat: bool = False
    listed: int = 0
    owners: int = 0
    listed_bytes: float = 0.0
    copy_host_s: float = COPY_HOST_S
    replicas: str = ""
    offload: Offload | None = None
    nan_check: bool = False
    last_buckets: int = 1
    scaled_first: bool = False
    in_turn: bool = False
    copied_back: bool = False
    ready: float = 0.0  # elements whose gradients are ready and not yet reduced
    reductions: list[int] = field(default_factory=list)
    parts: list[float] = field(default_factory=list)  # parameters of which these elements are, where uncut
    known: dict[tuple[float, int, tuple[float, ...]], Collective] = field(default_factory=dict)

    def add(self, writer: ProgramBuilder, elements: float, *, one: bool = False) -> None:
        """Count ``elements`` more parameters whose gradients are ready, and reduce every full bucket.
        ``one``: they are one parameter, and no layer that happens to have as many."""
        if self.uncut is not None:
            for parameter in filter(None, (elements,) if one else self.uncut.get(elements, (elements,))):
                self.ready += parameter
                self.parts.append(parameter)
                if self.ready >= self.bucket_elements:
                    self.flush(writer)
            return
        self.ready += elements
        full = int(self.ready // self.bucket_elements)
        if self.over_replicas or self.offload:
            for _ in range(full):
                self._reduce(writer, self.bucket_elements)
        elif full:
            self._reduce(writer, self.bucket_elements, calls=full)

    def fills(self, elements: float) -> bool:
        """Whether ``add`` of so many elements would reduce a bucket."""
        return self.ready + elements >= self.bucket_elements

    def splits(self, elements: float) -> bool:
        """Whether a layer of so many elements fills a bucket before it has all its gradients."""
        return self.uncut is not None and self.bucket_elements < elements

    def flush(self, writer: ProgramBuilder, *, last: bool = False) -> None:
        """Reduce what is left; ``last``: with it the buckets that went with the last ones. Where there are
        such, something is left: embedding and head wait for the end, or all is reduced at once."""
        if self.ready > 0:
            self._reduce(writer, self.ready, buckets=self.last_buckets if last else 1)

    def _reduce(self, writer: ProgramBuilder, elements: float, *, calls: int = 1, buckets: int = 1) -> None:
        """Reduce ``elements``, so many ``calls``, each of so many ``buckets``."""
        kind = "reduce_scatter" if self.sharded else "all_reduce"
        host_s = self.costs.host_collective_s + self.check_s
        if self.nan_check:
            self._check(writer, calls * elements, calls * buckets)
        if self.scaled_first:
            self._scale(writer, calls * elements, calls)
        work = self._calls(kind, elements, calls)
        index = writer.on_stream(f"gradient {kind}", "dp", "dp", work, host_s=calls * host_s)
        if self.over_replicas:
            own = elements * self.wire_bytes / self.shards
            late = Collective("all_reduce", self.replicas, self.over_replicas(own))
            host_s = self.costs.host_collective_s
            index = writer.on_stream(
                "gradient all_reduce", self.replicas, "dp", late, after=(index,), host_s=host_s
            )
        if self.in_turn:
            writer.wait(index)
        if self.offload:
            leave = self.offload.gradients_leave(elements / self.shards)
            index = writer.on_stream(
                leave.name, leave.stream, leave.category, leave.work, after=(index,), host_s=leave.host_s
            )
        self.reductions.append(index)
        self.ready -= calls * elements

    def _check(self, writer: ProgramBuilder, elements: float, buckets: int) -> None:
        """Append the kernels that read gradients for their norms and compare these, first with NaN, then with
        infinity. The host waits for the answer to each (Megatron core 0.14 param_and_grad_buffer.py,
        check_grads: one bucket of a group after the other; rerun_state_machine.py, validate_result)."""
        reading = MemoryBound(hbm_bytes=elements * self.element_bytes, launches=buckets, numbers=buckets)
        work = Compute(self.costs.seconds(reading), "memory-bound", bytes=reading.hbm_bytes)
        host_s = 2 * buckets * self.costs.host_s  # the norm, and its comparison
        writer.compute("check gradients", work, host_s=host_s, host_sync=True)
        comparing = Compute(
            self.costs.seconds(MemoryBound(hbm_bytes=0.0, launches=0, numbers=buckets)), "memory-bound"
        )
        host_s = buckets * self.costs.host_s
        writer.compute("check for infinity", comparing, host_s=host_s, host_sync=True)

    def _scale(
        self, writer: ProgramBuilder, elements: float, calls: int = 1, *, category: str = "compute"
    ) -> None:
        """Append kernels that scale gradients, in so many ``calls``, with casts to the type on the wire, and
        back.

        They are memory-bound kernels, and count as such even where a message waits for them.
        """
        narrow = self.wire_bytes != self.element_bytes
        cast = elements * (self.wire_bytes + self.element_bytes) if narrow else 0.0
        scaling = MemoryBound(hbm_bytes=elements * 2.0 * self.element_bytes + cast, launches=calls)
        seconds = self.costs.seconds(scaling)
        if narrow:
            issued = self.costs.issued("cast to FP32", elements)
            seconds += self.costs.seconds(issued.kernel(cast, launches=0))
        work = Compute(seconds, "memory-bound", bytes=scaling.hbm_bytes + cast)
        writer.compute("scale gradients", work, category=category, host_s=calls * self.costs.host_s)

    def _calls(self, kind: str, elements: float, calls: int) -> Collective:
        """``calls`` reductions of ``elements`` each, as one collective. Equal arguments return the same
        object."""
        apart = not (self.sharded or self.flat) and sum(self.parts) == elements
        parts = tuple(self.parts) if apart else ()
        self.parts.clear()
        key = elements, calls, parts
        if key not in self.known:
            one = in_turn([self.transfer(kind, each * self.wire_bytes) for each in parts or (elements,)])
            self.known[key] = Collective(kind, self.communicator, several(one, calls), calls)
        return self.known[key]

    def finish(self, writer: ProgramBuilder, held: float) -> None:
        """Append what waits for every reduction, and scale sums to means where reductions did not."""
        self.flush(writer, last=True)
        writer.wait(*self.reductions)
        if not self.scaled_first:
            self._scale(writer, held, category="optimizer")
        if self.copied_back:
            copies = MemoryBound(hbm_bytes=2.0 * held * self.element_bytes)
            work = Compute(self.costs.seconds(copies), "memory-bound", bytes=copies.hbm_bytes)
            writer.compute("copies of gradients", work, category="optimizer", host_s=self.costs.host_s)

    def gather_parameters(self, writer: ProgramBuilder, size_bytes: float) -> int:
        """All-gather updated parameters, or broadcast each owner's; returns the op to wait for."""
        kind, calls = "all_gather", 1
        if self.owners:
            part = min(1.0, size_bytes / self.listed_bytes)
            kind, calls = "broadcast", max(1, round(self.owners * part))
        transfer = several(self.transfer(kind, size_bytes / calls), calls)
        work = Collective(kind, self.communicator, transfer, calls)
        index = writer.on_stream(
            f"parameter {kind}",
            "dp",
            "dp",
            work,
            host_s=calls * (self.costs.host_collective_s + self.check_s),
        )
        return self._copied_back(writer, index, size_bytes) if self.listed else index

    def _copied_back(self, writer: ProgramBuilder, gathered: int, size_bytes: float) -> int:
        """What gathering lists costs besides; the last copy.

        Parameters into a flat buffer for each rank, torch's own gathered buffer into these, each read and
        written; then a copy for each parameter and each rank. What the host takes for all of these copies
        hides what they move, but for what is more. A gather of a part has its share of the copies.
        """
        writer.wait(gathered)
        flat = MemoryBound(hbm_bytes=4.0 * size_bytes, launches=2 * self.shards)
        work = Compute(self.costs.seconds(flat), "memory-bound", bytes=flat.hbm_bytes)
        writer.compute("flat lists", work, category="optimizer", host_s=2 * self.shards * self.copy_host_s)
        copies = MemoryBound(hbm_bytes=2.0 * size_bytes)
        part = min(1.0, size_bytes / self.listed_bytes)
        host_s = part * self.listed * self.shards * self.copy_host_s
        seconds = max(self.costs.seconds(copies) - host_s, 0.0)
        work = Compute(seconds, "memory-bound", bytes=copies.hbm_bytes)
        return writer.compute("copies of parameters", work, category="optimizer", host_s=host_s)
