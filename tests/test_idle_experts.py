"""Routers that leave a rank's experts without a token: the ranks that meet still run the same ops."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from small_experts import with_experts

from stepsim.sim.lowering.layers.routing import rank_loads
from stepsim.sim.simulate import simulate


@pytest.mark.parametrize("precision", ["bf16", "fp8"])
@pytest.mark.parametrize("grouped_gemm", ["streams", "one-kernel", "stacked"])
def test_ranks_without_a_token_run_in_any_precision(
    tmp_path: Path, precision: str, grouped_gemm: str
) -> None:
    file = tmp_path / "counts.json"
    file.write_text(json.dumps([100] * 14 + [0, 0]))
    routing = {"kind": "counts", "file": str(file)}
    run = with_experts(precision=precision, routing=routing, grouped_gemm=grouped_gemm, pp=2, schedule="1f1b")
    assert 0.0 in rank_loads(run)
    assert simulate(run).step_time_s > 0


def test_one_expert_takes_all() -> None:
    alone, even = (
        simulate(with_experts(precision="fp8", routing=r, seq_length=2048, host_s_per_kernel=0.0)).step_time_s
        for r in ({"kind": "zipf", "exponent": 100.0}, "balanced")
    )
    assert alone > even
