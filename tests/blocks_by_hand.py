"""Programs of few repeated blocks whose times can be worked out by hand."""

from __future__ import annotations

from stepsim.sim.engine.record import Record, Stretch
from stepsim.sim.network.transfer import Transfer
from stepsim.sim.program.program import (
    Block,
    Collective,
    Compute,
    Op,
    Program,
    Programs,
    RepeatedBlocks,
)

LINKS = {"nvlink.out": 100.0, "nvlink.in": 100.0, "nic.out": 10.0, "nic.in": 10.0}

NVLINK = (("nvlink.out", 1.0),)


def programs(*ops: Op, corun: float = 0.0) -> Programs:
    return Programs(
        classes=(Program(ops=ops),),
        communicators={},
        links=({"nvlink.out": 100.0, "nvlink.in": 100.0},),
        sms=100,
        corun_slowdown=corun,
    )


def kernel(seconds: float, *after: int, host_s: float = 0.0) -> Op:
    return Op("kernel", "compute", "compute", Compute(seconds, "gemm"), after, host_s=host_s)


def collective(stream: str, transfer: Transfer, *after: int) -> Op:
    return Op(stream, stream, stream, Collective("all_reduce", stream, transfer), after)


def repeated(*ops: Op, times: int = 1) -> Op:
    work = RepeatedBlocks(((Block("block", ops), times),))
    return Op("repeated", "compute", "compute", work, action="0F0", host_s=work.host_s)


def shape(record: Record, i: int, r: int = 0) -> list[int | str]:
    """How op ``i`` of class ``r`` ran: so many blocks as a whole, or one in detail."""
    return [piece.count if isinstance(piece, Stretch) else "open" for piece in record.pieces(r, i)]
