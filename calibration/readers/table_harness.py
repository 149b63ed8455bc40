"""What the harness of a table of kernels does that its file does not say: calls in a round, data in weights.

Knows the harness of aiconfigurator by the framework that a table's ``source`` names. Does not know what
either costs: fit/curve_fit.py and kernels/power.py do.

vLLM 0.24 (ai-dynamo/aiconfigurator, collector/vllm/collect_gemm.py): a round calls six layers, and one where
the type is ``fp8_block`` or ``nvfp4``. Weights of 16 bit are what ``torch.empty`` finds in memory ("TODO, to
evaluate random weights impact"), those of 8 bit with one scale are all 0.01 (``weight.fill_``), others are
random. TensorRT-LLM (collector/trtllm/collect_gemm.py) draws all weights at random.
"""

from __future__ import annotations

from ...kernels.kernel import ELEMENT_BYTES, Gemm

ROUND_CALLS = 6

WRITTEN_BYTES = 3.0e9
"""Of weights that nobody wrote, how many in all half lie in memory that the process has written before, with
inputs and outputs of earlier calls: fresh memory is zero. Fitted alone on H200, H100 and B300, together with
how suddenly the power limit acts: 3.2, 3.1 and 2.7 GB."""


def round_calls(source: str, product: Gemm) -> int:
    """Layers that a round of calls of ``product`` has in the harness of ``source``."""
    return 1 if _is_vllm(source) and product.dtype in ("fp8_block", "nvfp4") else ROUND_CALLS


def blank_share(source: str, product: Gemm) -> float:
    """Share of the weights of ``product`` that are zero, or all one number, in the harness of ``source``.

    >>> blank_share("aiconfigurator vllm/0.24.0", Gemm(m=1024, n=4096, k=4096)) < 0.01
    True
    >>> round(blank_share("aiconfigurator vllm/0.24.0", Gemm(m=1024, n=51200, k=51200)), 2)
    0.99
    >>> blank_share("aiconfigurator trtllm/1.3.0rc10", Gemm(m=1024, n=51200, k=51200))
    0.0
    """
    if not _is_vllm(source):
        return 0.0
    if product.dtype == "fp8":
        return 1.0
    if product.dtype != "bf16":
        return 0.0
    weights_bytes = ROUND_CALLS * product.n * product.k * ELEMENT_BYTES[product.dtype]
    return 1.0 - 1.0 / (1.0 + (weights_bytes / WRITTEN_BYTES) ** 2)


def _is_vllm(source: str) -> bool:
    return " vllm/" in source
