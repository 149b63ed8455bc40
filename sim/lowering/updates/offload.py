"""Optimizer state on the host: gradients go there as they are reduced, the CPU updates, parameters come back.

ZeRO-Offload: the CPU's Adam reads and writes FP32 weights and moments in host memory, tile by tile, and each
tile of 16-bit parameters is copied to the GPU while the next one is updated. ZeRO-Infinity keeps that state
on NVMe: the disks read and write it meanwhile, so that the slower of CPU and disks decides. All ranks of
a host share its memory and disks.

Sources:
    Ren et al. 2021, arXiv:2101.06840, sections 3, 4.1 and 5 (CPU-Adam, tiled copies).
    Rajbhandari et al. 2021, arXiv:2104.07857, sections 5.1.1 and 5.2.2 (overlap of disk, CPU and GPU).
    deepspeed/ops/adam/cpu_adam.py, csrc/adam/cpu_adam_impl.cpp (``#pragma omp parallel for``).
    torch/distributed/run.py, accelerate/commands/launch.py: OMP_NUM_THREADS is 1 unless somebody sets it.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....hardware.host_memory import HostMemory
from ...network.transfer import Transfer
from ...program.program import Collective, Op
from ...program.program_builder import ProgramBuilder

TO_HOST, FROM_HOST, CPU = "to host", "from host", "cpu"
"""Streams: the GPU's two copy engines, and its process's share of the CPU."""

HOST = "host"
"""The communicator of one rank with its own host."""

TILES = 4
"""Pieces in which updated parameters are copied (cpu_adam alternates two buffers; more change little)."""

CPU_EFFICIENCY = 0.5
"""Fraction of the host memory's rate that an update reaches (unverified; STREAM reaches 0.7 to 0.85)."""

THREAD_BYTES_PER_S = 14e9
"""Bytes that one thread reads and writes in an update. A loop of Adam's over 150 M parameters, 28 bytes of
each, moves 12.5 to 14.7 GB/s on one core of an EPYC (gcc -O3 -march=native -ffast-math;
docs/decisions/0231-autocast.md); torch's operators one after the other, some 48 bytes, take 3.6 ms a million
on one of a host of H100, 13 GB/s (ISEEKYAN/Megatron-LM issue 188)."""


@dataclass(frozen=True, kw_only=True)
class Offload:
    """Where the optimizer's state is and what moving it costs one rank.

    ``gradient_bytes`` and ``parameter_bytes`` per parameter over the link; ``disks``: state is on NVMe;
    ``threads`` update a rank's parameters, None for as many as the memory bears.
    """

    host: HostMemory
    ranks_per_host: int
    gradient_bytes: float
    parameter_bytes: float
    moment_bytes: float
    disks: bool
    host_s: float
    threads: int | None = None

    @property
    def update_s_per_parameter(self) -> float:
        """Seconds of CPU-Adam for a parameter: gradient read, weight and moments read and written, 16-bit
        parameter written."""
        state = 4.0 + 2 * self.moment_bytes
        moved = self.gradient_bytes + 2 * state + self.parameter_bytes
        seconds = moved / self._bytes_per_s
        if self.disks:
            read, write = self.host.disk_read_bytes_per_s, self.host.disk_write_bytes_per_s
            seconds = max(seconds, state / read, state / write)
        return seconds * self.ranks_per_host

    @property
    def _bytes_per_s(self) -> float:
        """What all ranks of a host together move of its memory."""
        memory = self.host.memory_bytes_per_s * CPU_EFFICIENCY
        if self.threads is None:
            return memory
        return min(memory, self.ranks_per_host * self.threads * THREAD_BYTES_PER_S)

    def copy(self, name: str, stream: str, size: float) -> Op:
        """A copy of ``size`` bytes between the GPU and its host."""
        transfer = Transfer(0.0, size, self.host.link_bytes_per_s)
        return Op(name, stream, "optimizer", Collective("copy", HOST, transfer), host_s=self.host_s)

    def gradients_leave(self, elements: float) -> Op:
        """The copy of the reduced gradients of ``elements`` parameters to the host."""
        return self.copy("gradients to host", TO_HOST, elements * self.gradient_bytes)


def write_offloaded(writer: ProgramBuilder, offload: Offload, updated: float, *, sent: bool) -> None:
    """Append the CPU's update of ``updated`` parameters, behind the copy of their gradients unless they
    were ``sent`` before."""
    ready = writer.frontier()
    if not sent:
        ready = (_append(writer, offload.gradients_leave(updated), ready),)
    part = updated / TILES
    for _ in range(TILES):
        update = Transfer(part * offload.update_s_per_parameter, 0.0, 1.0)
        work = Op("CPU Adam", CPU, "optimizer", Collective("update", HOST, update))
        ready = (_append(writer, work, ready),)
        back = offload.copy("parameters from host", FROM_HOST, part * offload.parameter_bytes)
        writer.wait(_append(writer, back, ready))


def _append(writer: ProgramBuilder, op: Op, after: tuple[int, ...]) -> int:
    return writer.on_stream(op.name, op.stream, op.category, op.work, after=after, host_s=op.host_s)
