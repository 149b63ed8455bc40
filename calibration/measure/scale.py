"""How large the sweeps are: shapes of training on a GPU, the same scaled down on a CPU.

Knows sizes only; points.py makes kernels of them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How large the sweeps are. ``weights``: (outputs, inputs) of matrices as whole models have them."""

    dtypes: tuple[str, ...]
    tokens: tuple[int, ...]
    weights: tuple[tuple[int, int], ...]
    shards: tuple[int, ...]
    attention: tuple[str, ...]
    attention_tokens: int
    sequences: tuple[int, ...]
    widths: tuple[int, ...]
    rows: tuple[int, ...]
    vocabularies: tuple[int, ...]
    streams: tuple[int, ...]
    fused: tuple[str, ...]
    copy_blocks: tuple[int, ...]
    gemm_flops: float


# Matrices of Llama 3.1 8B, 70B and 405B and of GPT-3 175B (their papers): QKV, projection, first (with both
# branches of SwiGLU), second.
_MODELS = (
    ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336)),
    ((10240, 8192), (8192, 8192), (57344, 8192), (8192, 28672)),
    ((18432, 16384), (16384, 16384), (106496, 16384), (16384, 53248)),
    ((36864, 12288), (12288, 12288), (49152, 12288), (12288, 49152)),
)
GPU = Scale(
    dtypes=("bf16",),
    tokens=(1024, 2048, 4096, 8192, 16384),
    weights=tuple(matrix for model in _MODELS for matrix in model),
    shards=(1, 2, 4, 8),
    attention=("fa2", "cudnn"),
    attention_tokens=16384,
    sequences=(512, 1024, 2048, 4096, 8192, 16384, 32768),
    widths=(2048, 4096, 8192, 16384),
    rows=(1024, 4096, 16384),
    vocabularies=(32000, 128256),
    streams=tuple(2**power for power in range(16, 31, 2)),
    fused=("triton", "torch"),
    copy_blocks=(8, 16, 32),
    gemm_flops=2e14,
)
CPU = Scale(
    dtypes=("fp32",),
    tokens=(64, 128, 256, 512),
    weights=((768, 512), (512, 512), (2048, 512), (512, 1024), (1536, 1024), (1024, 1024)),
    shards=(1, 2, 4),
    attention=("torch",),
    attention_tokens=512,
    sequences=(64, 128, 256, 512),
    widths=(256, 1024, 4096),
    rows=(64, 256, 1024),
    vocabularies=(4000, 32000),
    streams=tuple(2**power for power in range(12, 25, 2)),
    fused=("torch",),
    copy_blocks=(1,),
    gemm_flops=4e9,
)
