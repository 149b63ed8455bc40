"""GPUs of measurements: as tables name them, by their catalogue key or shorter as people do in scenarios, and
as whoever hands the files in states them, who may describe one that the catalogue lacks."""

from __future__ import annotations

from pathlib import Path

from ...hardware.gpu import Gpu
from ...hardware.gpus import get_gpu, gpu_called

StatedGpu = str | Gpu
"""The GPU of files that name none: a key of the catalogue, ``cpu``, or a GPU that a user describes."""


def named_gpu(where: str, text: str) -> str:
    """The catalogue key that ``text`` means; ValueError naming ``where`` for no GPU, or for several.

    >>> named_gpu("kernels.csv:2", "H100")
    'H100-SXM5-80GB'
    """
    try:
        return gpu_called(text)
    except ValueError as wrong:
        raise ValueError(f"{where}: gpu: {wrong}") from None


def chip_of(gpu: StatedGpu) -> Gpu:
    """The GPU itself, of the catalogue where only its name is known. Errors of ``gpu_called``."""
    return gpu if isinstance(gpu, Gpu) else get_gpu(gpu)


def name_of(gpu: StatedGpu) -> str:
    """What results and profiles call it."""
    return gpu.name if isinstance(gpu, Gpu) else gpu


def agreed_gpu(path: Path, found: str | None, stated: StatedGpu | None, device: str = "") -> StatedGpu | None:
    """The GPU of a file that names ``found``, which its text calls ``device``, and is ``stated`` to be of
    another's; None where nobody names one.

    A GPU that a user describes may be named in the file as the one that it is a change of. ValueError where
    both name different GPUs.
    """
    if not found or not stated or found == name_of(stated):
        return stated or found
    if isinstance(stated, Gpu) and found == stated.profile_of:
        return stated
    called = f"{device} ({found})" if device else found
    raise ValueError(f"{path}: is of {called}, not of {name_of(stated)} as --gpu says")
