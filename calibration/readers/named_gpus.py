"""GPUs as tables of measurements name them: by their catalogue key, or shorter as people do in scenarios."""

from __future__ import annotations

from ...hardware.gpus import gpu_called


def named_gpu(where: str, text: str) -> str:
    """The catalogue key that ``text`` means; ValueError naming ``where`` for no GPU, or for several.

    >>> named_gpu("kernels.csv:2", "H100")
    'H100-SXM5-80GB'
    """
    try:
        return gpu_called(text)
    except ValueError as wrong:
        raise ValueError(f"{where}: gpu: {wrong}") from None
