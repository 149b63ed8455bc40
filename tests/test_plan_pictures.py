"""Pictures of sweeps and plans name values as tables do."""

from __future__ import annotations

from small_plans import DOCUMENT, FIX, small

import stepsim
from stepsim.sim.report.plan.picture import plan_svg
from stepsim.sim.report.plan.sweep import layout_sweep_svg


def test_a_cell_of_a_map_has_a_line_for_each_figure() -> None:
    swept = stepsim.sweep(DOCUMENT, {"training.micro_batch": [1, 2], "parallelism.zero": [0, 1]}, jobs=1)
    assert "\\n" not in layout_sweep_svg(swept)


def test_what_is_recomputed_is_named() -> None:
    some = {"kind": "full", "layers": 2}
    fix = {**FIX, "parallelism.tp": 2, "parallelism.pp": 2, "parallelism.zero": 0, "schedule": "1f1b"}
    del fix["training.recompute"]
    found = stepsim.plan(small(), fix=fix, vary={"training.recompute": ["none", some]}, audit=0, jobs=1)
    assert " full layers 2<" in plan_svg(found)
