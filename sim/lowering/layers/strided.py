"""What torch's kernels issue where they take one element at a time.

Halves of a row, heads that share an angle, rows that share a bias: torch passes these element by element, 2
bytes at a time, and divides for where each lies, where it passes 16 bytes at a time otherwise. A cast of 16
bits to FP32 looks up the type of each element that it reads; one to 16 bits has a kernel of its own.

References:
    PyTorch ATen/native/cuda/CUDALoops.cuh, gpu_kernel_impl_nocast: launch_vectorized_kernel where all is
    contiguous, else launch_legacy_kernel; ATen/cuda/detail/OffsetCalculator.cuh and IntegerDivider.cuh; joins
    in ATen/native/cuda/Shape.cu: CatArrayBatchedCopy_vectorized where all is contiguous, else
    CatArrayBatchedCopy. Casts: ATen/native/cuda/Copy.cu, direct_copy_kernel_cuda (bfloat16_copy_kernel_cuda
    and float16_copy_kernel_cuda are for what is FP32), and CUDALoops.cuh, LoadWithCast.
"""

from __future__ import annotations

from typing import NamedTuple

from .issued import Issued, counted_once

STRIDED = {
    "clamp": Issued(51.0, 20.2),
    "compare": Issued(50.0, 18.1),
    "choose": Issued(60.0, 20.1),
    "product by row": Issued(53.0, 25.2),
    "product by head": Issued(66.0, 36.2),
    "negation": Issued(45.0, 22.2),
    "join of halves": counted_once(65.0),
    "join of rows": counted_once(47.0),
    "join of what is strided": counted_once(84.0),
    "copy": Issued(43.0, 15.1),
    "put": counted_once(101.0),
    "scatter_add": counted_once(95.0),
    "sum of what is put": counted_once(44.0),
    "index_add": counted_once(141.0),
    "cast to FP32": Issued(52.0, 1.8),
    "FP32 product by row": Issued(54.5, 18.2),
    "FP32 plus 16 bits": Issued(71.0),
    "join to FP32": counted_once(46.0),
}
"""Instructions of a thread for each element of 16 bits. Counted in the machine code of kernels built alike
(nvcc 13.0) on the path that two dimensions take, three for a product by head: 51, 50, 63, 55, 67 and 45 for
Hopper, 50, 49, 57, 52, 66 and 44 for Blackwell; copies 43 and 42. Joins, of four dimensions (Hopper): of an
input whose rows follow one another 47, of one whose do not 84; halves are one each.

What was measured of such kernels is not below this. Copies of heads (43) and the join of their gradients take
an H200 170 us (docs/kernels.md), where instructions tell 118 and bytes 89. A product by row of FP32, 4,096 x
75,968, takes a GH200 845 us (tiberiuiancu/Simulon experiments/nsys_tp2-1140757.log at c5c0969e), where
instructions tell some 720 and bytes about as much.

Six more were counted by the hardware (ncu, smsp__inst_executed times 32) on an H200 with torch 2.11
and 131,072 rows of 2,048: ``index_put_`` and ``scatter_add`` of rows by a tensor of indices,
``index_put_`` that adds up, ``index_add``, ``float()`` of 16 bits, FP32 rows times a column. At its
boost clock they take 1.20, 1.00, 0.81, 2.22, 0.76 and 0.81 ms, with schedulers busy for 69, 77, 56, 53,
56 and 56 % of it: the latter four wait for something else, too.

What chains of them take follows. On an H200 at its boost clock (torch 2.11), in the bytes that pass at
the rate of pointwise kernels meanwhile: ``float()`` 11.1 an element, whatever the layout, where 6 pass,
the cast back 5.5; an FP32 product by row or column 11.4 (8 pass), a product by row 9.4 (4 pass). RMSNorm
as models write it takes 50 and 110, forward and backward; these parts are 50 and 106, where 36 and 92
pass. Products with sines, negated halves, their join and sum take 46 each way, where 20 and 30 pass.
``masked_fill`` takes 14.5, where 5 do. The rule of ISSUED (kernels/memory_bound.py) makes of a cast 9,
of the products 9.4 and 9.2, at the clock of training.

The last two were counted as the first (nvcc 13.0, Hopper). An FP32 tensor plus one of 16 bits, ``add_`` of a
gradient or a residual stream and its branch, looks up the types of both and of what it writes: 71, where a
cast by the same count has 51 (52 by the hardware's). Of FSDP2's ``chunk_cat`` into FP32 (ATen/native/cuda/
TensorShape.cu, chunk_cat_cuda_kernel) each thread passes 4 elements, in a loop of 12 instructions, after 136
that read six tables one behind the other and divide twice. They take that H200 13.9 and 11.8 bytes' time an
element, where 10 and 6 pass, and are told at 13.4 and 8.7.

AMD's are vector instructions in machine code for gfx942 (clang 19) of kernels built alike, on the path of
whole blocks: torch's for ROCm are others. A thread takes eight elements of 16 bits, or four of 32, 128 apart;
two dimensions have offsets of their own code; casts of 16 bits to FP32 are kernels of their own, which pass 4
at a time where all is contiguous (CUDALoops.cuh, launch_legacy_kernel_manual_unroll; OffsetCalculator.cuh;
Copy.cu, bfloat16tofloat32_copy_kernel_cuda, at 007aa8ae). Products of whole numbers, nearly half of them,
count as one each, as LLVM has them from gfx90a on (llvm/lib/Target/AMDGPU/SISchedule.td, WriteIntMul). An
FP32 tensor plus one of 16 bits is passed several elements at a time there, too (CUDALoops.cuh,
launch_vectorized_templated_kernel)."""

OF_TORCH = frozenset({"cast to FP32", "FP32 plus 16 bits", "choose", "softmax"})
"""What XLA compiles into the kernels beside it, in which bytes take longer: casts, masks, and softmax, whose
instructions in torch depend on its rows (attention_core.py)."""


class Cast(NamedTuple):
    """What a cast of an element to FP32 moves and issues, in so many kernels; one back moves as much."""

    bytes: float
    instructions: Issued
    launches: int
