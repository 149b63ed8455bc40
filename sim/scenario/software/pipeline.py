"""How a stack passes activations and gradients between pipeline stages, and what its last stage holds."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ....hardware.fields import whole
from .group import SoftwareGroup

PointToPoint = Literal["async", "blocking", "prefetch", "prefetch-full", "torch"]
SplitPointToPoint = Literal["async", "torch"]
OverlappedPointToPoint = Literal["async", "batched", "torch"]
HostSync = Literal["never", "receive", "always"]
KeptOutputs = Literal["none", "last", "all"]


class PipelineSoftware(SoftwareGroup):
    """Messages of a pipeline: the rules are `schedules/p2p`'s, one a framework."""

    point_to_point: PointToPoint = Field(
        default="blocking",
        description="async: sends are posted; blocking: Megatron-LM's batches; prefetch: Megatron core's"
        " overlap_p2p_comm, prefetch-full: with overlap_p2p_comm_warmup_flush; torch: torch.distributed"
        ".pipelining",
    )
    split_point_to_point: SplitPointToPoint = Field(
        default="async",
        description="of schedules with runtimes of their own: split backwards, several chunks not"
        " interleaved",
    )
    overlapped_point_to_point: OverlappedPointToPoint = Field(
        default="batched",
        description="of schedules that overlap a forward and a backward (DeepSeek's DualPipe)",
    )
    p2p_host_sync: HostSync = Field(
        default="never",
        description="the host waits for point-to-point calls: for all, or for those that receive",
    )
    p2p_messages: Annotated[int, *whole(1, 100)] = Field(
        default=1, description="messages in sequence per tensor (shape messages first)"
    )
    keeps_outputs: KeptOutputs = Field(
        default="none",
        description="outputs of stages that stay until the step ends, of every microbatch: the logits of the"
        " last stage, which torch.distributed.pipelining returns unless told not to, or those of all stages,"
        " which it had until May 2025",
    )
    keeps_received: bool = Field(
        default=False,
        description="what stages get has a buffer of its own for each microbatch of a step, which stays, and"
        " what they give stays until its backward (torch.distributed.pipelining)",
    )
    scatter_gather_p2p: bool = Field(
        default=False,
        description="each TP rank sends 1/tp of the activation, all-gathered by the receiver"
        " (arXiv:2104.04473 section 4.1)",
    )
    head_beside_loss: bool = Field(
        default=False,
        description="stage_split flops_balanced: the head is on the last stage, where the loss is",
    )
