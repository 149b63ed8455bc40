"""Programs of a few ops for the engine, made by hand."""

from __future__ import annotations

from stepsim.sim.program.program import Compute, Op, Program, Programs

LINKS = {"nvlink.out": 100.0, "nvlink.in": 100.0, "nic.out": 10.0, "nic.in": 10.0}


def programs(
    *classes: list[Op], communicators: dict[str, tuple[int, ...]] | None = None, corun: float = 0.0
) -> Programs:
    return Programs(
        classes=tuple(Program(ops=tuple(ops)) for ops in classes),
        communicators=communicators or {},
        links=(LINKS,) * len(classes),
        sms=100,
        corun_slowdown=corun,
    )


def kernel(
    seconds: float, *, after: tuple[int, ...] = (), stream: str = "compute", host_s: float = 0.0
) -> Op:
    return Op("kernel", stream, "compute", Compute(seconds, "gemm"), after, host_s=host_s)
