"""Which weights hold no data in the harness of a table of kernels, which its file does not say.

Knows the harness of aiconfigurator by the framework that a table's ``source`` names. Does not know what that
makes of a GEMM's watts: fit/curve_fit.py does.

vLLM 0.24 (ai-dynamo/aiconfigurator, collector/vllm/collect_gemm.py): six layers a round, whose weights of 16
bit are what ``torch.empty`` finds in memory ("TODO, to evaluate random weights impact"). TensorRT-LLM
(collector/trtllm/collect_gemm.py) draws all weights at random.
"""

from __future__ import annotations

from ...kernels.kernel import ELEMENT_BYTES, Gemm

LAYERS = 6

WRITTEN_BYTES = 3.0e9
"""Of weights that nobody wrote, how many in all half lie in memory that the process has written before, with
inputs and outputs of earlier calls: fresh memory is zero. Fitted alone on H200, H100 and B300, together with
how suddenly the power limit acts: 3.2, 3.1 and 2.7 GB."""


def blank_share(source: str, product: Gemm) -> float:
    """Share of the weights of ``product`` that hold no data in the harness of ``source``.

    >>> blank_share("aiconfigurator vllm/0.24.0", Gemm(m=1024, n=4096, k=4096)) < 0.01
    True
    >>> round(blank_share("aiconfigurator vllm/0.24.0", Gemm(m=1024, n=51200, k=51200)), 2)
    0.99
    >>> blank_share("aiconfigurator trtllm/1.3.0rc10", Gemm(m=1024, n=51200, k=51200))
    0.0
    """
    if " vllm/" not in source or product.dtype != "bf16":
        return 0.0
    weights_bytes = LAYERS * product.n * product.k * ELEMENT_BYTES[product.dtype]
    return 1.0 - 1.0 / (1.0 + (weights_bytes / WRITTEN_BYTES) ** 2)
