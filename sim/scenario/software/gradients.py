"""What happens from a fresh gradient to an updated parameter: widths, buckets, when gradients are reduced,
and by whom.

Two frameworks have ways of their own that no single field says; they are named, and what they imply is here.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ....hardware.fields import NO_BOOL
from .group import SoftwareGroup

Bucket = Annotated[float, Field(strict=True, ge=1)]
"""Elements of a bucket, at least one; ``.inf`` puts all gradients into one bucket."""

Reduction = Literal["buckets", "megatron-buckets", "nanotron-buckets"]
Wrapper = Literal["none", "deepspeed"]
Assumed = Literal["none", "gathers", "all"]

BUCKET_ELEMENTS = 40e6
"""Elements of a bucket of a framework that states none: the least of Megatron core
(distributed_data_parallel.py)."""

BUCKET_ELEMENTS_PER_REPLICA = 1e6
"""Elements that each data-parallel rank adds to a bucket of Megatron core beyond the least, so that ranks of
a large group still send messages of a useful size: ``max(40000000, 1000000 * data_parallel_size)``
(distributed_data_parallel.py)."""

DEEPSPEED_BUFFER_ELEMENTS = 1e9
"""Elements of DeepSpeed's buffers: reduce_bucket_size and allgather_bucket_size, 5e8 each (DeepSpeed
runtime/zero/config.py)."""

DEEPSPEED_BF16_BUFFER_ELEMENTS = 5e9
"""Elements of the buffer of DeepSpeed's BF16_Optimizer, its allgather_bucket_size, which is gathered as a
list (DeepSpeed runtime/bf16_optimizer.py)."""


class GradientSoftware(SoftwareGroup):
    """Gradients of data parallelism and the update.

    `reduction` says how buckets close and when they go. `buckets`: a bucket takes what it has room for.
    `megatron-buckets` (Megatron core distributed_data_parallel.py, schedules.py): buckets grow with the
    data-parallel group, and pipeline ranks start a chunk's reduction, and gather the parameters of the next,
    in the same slot (schedules/p2p/megatron_hooks.py). `nanotron-buckets`
    (torch DDP's reducer.cpp, compute_bucket_assignment_by_size): a bucket closes with the parameter that
    fills it. Under ZeRO-1 with FP32 gradients nanotron has no DDP (trainer.py, _init_model): one all_reduce
    of the whole buffer follows the last backward (train_step, ``reduce_scatter=False``). Updated parameters
    are gathered as lists (distributed.py, all_gather_coalesced), with a copy for each parameter and rank.

    `wrapper` `deepspeed` is what DeepSpeed's ZeRO-1 puts around an optimizer (zero/stage_1_and_2.py under
    fp16, bf16_optimizer.py under bf16): the partition's 16-bit gradients are copied to FP32 for the update,
    beside flat buffers; under bf16 main gradients are FP32, to which fresh ones are cast by a kernel of its
    own, and reduced by an all-reduce (pipe/engine.py, _bf16_reduce_grads).
    """

    main_grad_bytes: Annotated[Literal[2, 4], NO_BOOL] = Field(
        default=4, description="bytes per element of the gradient that is accumulated and reduced"
    )
    reduce_grad_bytes: Annotated[Literal[0, 2, 4], NO_BOOL] = Field(
        default=0, description="bytes per element on the wire, where gradients are cast to reduce them"
    )
    master_weights: bool = Field(
        default=True,
        description="16-bit weights have FP32 ones that are updated; false: weights, gradients and moments"
        " are in 16 bit alone, as optimizers of torch hold the state of 16-bit parameters",
    )
    separate_grad_copy: bool = Field(
        default=False, description="16-bit gradients are kept beside the FP32 ones (the 20N bill)"
    )
    persistent_gradients: bool = Field(
        default=True,
        description="one gradient buffer all step long; false: each comes with the step's first backward",
    )
    reducer_copy: bool = Field(
        default=False,
        description="replicas copy gradients into buckets that are there all step long, and back (torch's"
        " DistributedDataParallel without gradient_as_bucket_view)",
    )
    wrapper: Wrapper = Field(default="none", description="what stands around the optimizer, as said above")
    reduction: Reduction = Field(
        default="buckets", description="how buckets close and when they are reduced, as said above"
    )
    bucket_elements: Bucket | None = Field(
        default=None,
        description="gradient bucket, in elements; inf is one bucket; left out: as `reduction` has it",
    )
    overlap_grad_reduce: bool = Field(
        default=True,
        description="buckets are reduced during backward; false, where parameters or gradients"
        " are sharded: each unit's reduction is waited for, and under DeepSpeed (overlap_comm) each gather",
    )
    zero1_reduce_scatters: bool = Field(
        default=True, description="ZeRO-1 reduces by reduce-scatter; false: a plain all-reduce"
    )
    zero1_broadcasts: bool = Field(
        default=False,
        description="under ZeRO-1 a rank owns whole parameters, and the owners broadcast what they updated"
        " one after another; false: an all-gather",
    )
    overlap_param_gather: bool = Field(
        default=False, description="updated parameters are gathered during the next forward"
    )
    overlap_assumed: Assumed = Field(
        default="none",
        description="what is taken to run beside compute as in such trainers, not read in the code of this"
        " one: gathers of parameters, or these and reductions; the interval reaches up to a step that waits",
    )
    casts_by_slice: bool = Field(
        default=False,
        description="under ZeRO-1 a rank casts what it updated a slice of a parameter at a time, each by"
        " kernels of its own (Megatron core distrib_optimizer.py)",
    )
    nan_check: bool = Field(
        default=False,
        description="each bucket is checked for NaN before it is reduced: a pass over it whose result the"
        " host waits for (Megatron core check_for_nan_in_grad)",
    )
    scaled_first: bool = Field(
        default=False,
        description="each bucket is divided by its ranks before it is reduced: a pass over it (Megatron core"
        " without average_in_collective, whose collectives average)",
    )
    moment_bytes: Annotated[Literal[2, 4], NO_BOOL] = Field(
        default=4,
        description="bytes of each of the optimizer's two moments (2: arXiv:2412.19437 section 3.3.3)",
    )
    optimizer_post_validation: bool = Field(
        default=False,
        description="where backwards are split, ranks update without waiting for the norm of all gradients"
        " (arXiv:2401.10241 section 4)",
    )

    def update_bytes(self, precision: str) -> int:
        """Bytes per element of what an update reads and writes: FP32, or 16 bit where there are no masters.

        torch's gradients have the type of their parameters, and its optimizers make their states in it
        (torch/optim/adamw.py and adam.py, ``torch.zeros_like(p)``).
        """
        return 4 if self.master_weights or precision == "fp32" else 2

    def gradient_bytes(self, precision: str) -> int:
        """Bytes per element of the gradient that is accumulated and reduced under 16-bit ``precision``."""
        if self.update_bytes(precision) == 2:
            return 2
        return 4 if self.wrapper == "deepspeed" and precision == "bf16" else self.main_grad_bytes

    def reduce_scatters(self, precision: str) -> bool:
        """Whether ZeRO-1 under ``precision`` reduces by reduce-scatter."""
        if self.reduction == "nanotron-buckets":
            return False
        return self.zero1_reduce_scatters and not (self.wrapper == "deepspeed" and precision == "bf16")

    def overlaps(self, zero: int) -> bool:
        """Whether buckets are reduced during backward under this ZeRO stage.

        DeepSpeed passes over overlap_comm under ZeRO-1 ("Overlap and contiguous grads are meaningless in
        stage 1 and are ignored": runtime/engine.py from 0.5.9 until 2025, _configure_zero_optimizer).
        """
        ignored = self.wrapper == "deepspeed" and zero == 1
        return self.overlap_grad_reduce and not ignored and not self.reduces_at_once(zero)

    def reduces_at_once(self, zero: int) -> bool:
        """Whether one call after the last backward reduces all gradients under this ZeRO stage."""
        return zero >= 1 and self.reduction == "nanotron-buckets" and self.main_grad_bytes == 4

    def keeps_copies(self, zero: int, replicas: int) -> bool:
        """Whether 16-bit gradients stay beside the FP32 ones between backwards. nanotron's are the buckets of
        torch's DDP, which it has of several replicas that reduce in backward (trainer.py, _init_model).
        """
        if self.reduction == "nanotron-buckets":
            return self.separate_grad_copy and replicas > 1 and not self.reduces_at_once(zero)
        return self.separate_grad_copy

    def flat_buffers(self, precision: str) -> float:
        """Elements, at most all of these, of 16-bit buffers beside parameters and gradients."""
        if self.wrapper == "none":
            return 0.0
        return DEEPSPEED_BF16_BUFFER_ELEMENTS if precision == "bf16" else DEEPSPEED_BUFFER_ELEMENTS

    def bucket(self, replicas: int = 1) -> float:
        """Elements of a gradient bucket of a data-parallel group of so many ranks."""
        if self.bucket_elements is not None:
            return self.bucket_elements
        grows = self.reduction == "megatron-buckets"
        return max(BUCKET_ELEMENTS, BUCKET_ELEMENTS_PER_REPLICA * replicas) if grows else BUCKET_ELEMENTS
