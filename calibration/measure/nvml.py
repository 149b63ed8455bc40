"""Clock, power and temperature of one NVIDIA GPU, read in microseconds through the driver's own library.

nvidia-smi would take longer than most measurements. Where there is no such library, every reading is None.

Sources: NVIDIA, NVML API Reference Guide: nvmlDeviceGetClockInfo (MHz), nvmlDeviceGetPowerUsage (mW, on
recent GPUs the mean of a second), nvmlDeviceGetTemperature (Celsius); enumerations in nvml.h.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

_LIBRARY = "libnvidia-ml.so.1"
_SUCCESS = 0
_CLOCK_SM = 1
_TEMPERATURE_GPU = 0
_VERSION_BYTES = 80


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Clock of the SMs, board power and temperature; None where they cannot be read."""

    sm_clock_hz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None


class Nvml:
    """The GPU of that UUID (GPU-...), or silence where the library or the GPU is missing."""

    def __init__(self, uuid: str, library: Any = None) -> None:
        self._library, self._handle = library or _load(), ctypes.c_void_p()
        if self._library is not None:
            found = self._library.nvmlInit_v2() == _SUCCESS
            name = ctypes.c_char_p(uuid.encode())
            get = self._library.nvmlDeviceGetHandleByUUID
            if not found or get(name, ctypes.byref(self._handle)) != _SUCCESS:
                self._library = None

    @property
    def driver(self) -> str:
        """The driver's version; empty where it is unknown."""
        text = ctypes.create_string_buffer(_VERSION_BYTES)
        if (
            self._library is None
            or self._library.nvmlSystemGetDriverVersion(text, _VERSION_BYTES) != _SUCCESS
        ):
            return ""
        return text.value.decode()

    def read(self) -> Reading:
        """What the GPU's sensors read now."""
        clock_mhz = self._number("nvmlDeviceGetClockInfo", _CLOCK_SM)
        power_mw = self._number("nvmlDeviceGetPowerUsage")
        return Reading(
            sm_clock_hz=None if clock_mhz is None else clock_mhz * 1e6,
            power_w=None if power_mw is None else power_mw * 1e-3,
            temperature_c=self._number("nvmlDeviceGetTemperature", _TEMPERATURE_GPU),
        )

    def _number(self, function: str, *which: int) -> float | None:
        value = ctypes.c_uint()
        if self._library is None:
            return None
        failed = getattr(self._library, function)(self._handle, *which, ctypes.byref(value)) != _SUCCESS
        return None if failed else float(value.value)


def _load() -> Any:
    try:
        return ctypes.CDLL(_LIBRARY)
    except OSError:
        return None
