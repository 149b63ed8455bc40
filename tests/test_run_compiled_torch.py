"""The kernels compiled for A100, H100 and B200 without a GPU: their shared memory against the model's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from checkout import ROOT

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    pytest.importorskip("triton")
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    script = [sys.executable, str(ROOT / "tests" / "compile_kernels.py")]
    done = subprocess.run(script, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def tiled(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """GEMMs and attention."""
    return [one for one in rows if "model_bytes" in one]


def test_all_kernels_compile(rows: list[dict[str, Any]]) -> None:
    names = {one["kernel"] for one in rows}
    assert names >= {"_copy", "_triad", "_swiglu", "_gelu_backward", "_adam", "_row_sums", "gemm fp8"}
    assert max(one["compiled_bytes"] for one in rows if "model_bytes" not in one) <= 32 * 1024


def test_tiles_fit_in_the_gpu(tiled: list[dict[str, Any]]) -> None:
    assert len(tiled) == 22
    # One KiB of an SM's shared memory belongs to the system (CUDA programming guide, compute capability 8.x).
    assert [one for one in tiled if one["compiled_bytes"] > one["sram_bytes"] - 1024] == []


def test_they_use_tensor_cores(tiled: list[dict[str, Any]]) -> None:
    assert [one["kernel"] for one in tiled if not one["tensor_cores"]] == []


def test_the_footprint_is_the_models(tiled: list[dict[str, Any]]) -> None:
    """Exact on H100 forward. A100 keeps Q (or a stage) in registers; backward adds a tile of dS."""
    for one in tiled:
        ratio = one["compiled_bytes"] / one["model_bytes"]
        if one["gpu"].startswith("H100") and "backward" not in one["kernel"]:
            assert ratio == 1.0, one
        assert 0.6 <= ratio <= 1.4, one
