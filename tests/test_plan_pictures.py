"""Pictures of sweeps and plans name values as tables do."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

from small_plans import DOCUMENT, FIX, small

import stepsim
from stepsim.sim.figures import seconds
from stepsim.sim.report.plan.picture import plan_svg
from stepsim.sim.report.plan.sweep import layout_sweep_svg


def test_a_cell_of_a_map_has_a_line_for_each_figure() -> None:
    swept = stepsim.sweep(DOCUMENT, {"training.micro_batch": [1, 2], "parallelism.zero": [0, 1]}, jobs=1)
    assert "\\n" not in layout_sweep_svg(swept)


def lines_of(svg: str) -> dict[str, float]:
    """Texts of a picture, and how far down each stands."""
    texts = ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")
    return {"".join(text.itertext()): float(text.get("y", "nan")) for text in texts}


def test_lines_of_a_cell_do_not_meet_however_many_rows_there_are() -> None:
    axes = {"training.global_batch": [16 * n for n in range(1, 13)], "parallelism.zero": [0, 1]}
    swept = stepsim.sweep(DOCUMENT, axes, jobs=1)
    lines = lines_of(layout_sweep_svg(swept))
    for point in swept.points:
        assert point.figures is not None
        step = lines[seconds(point.figures.step_time_s)]
        rate = lines[f"{point.figures.tokens_per_second_per_gpu:,.0f}"]
        assert rate - step > 11, "the size of their letters"


def test_names_that_have_no_room_are_slanted() -> None:
    names = ["megatron-core-2025", "megatron-core-2024", "megatron-2023", "deepspeed-zero3-2021"]
    long = layout_sweep_svg(stepsim.sweep(DOCUMENT, {"software": names}, jobs=1))
    short = layout_sweep_svg(stepsim.sweep(DOCUMENT, {"parallelism.zero": [0, 1]}, jobs=1))
    assert "rotate(-35" in long
    assert "rotate(-35" not in short


def test_what_is_recomputed_is_named() -> None:
    some = {"kind": "full", "layers": 2}
    fix = {**FIX, "parallelism.tp": 2, "parallelism.pp": 2, "parallelism.zero": 0, "schedule": "1f1b"}
    del fix["training.recompute"]
    found = stepsim.plan(small(), fix=fix, vary={"training.recompute": ["none", some]}, audit=0, jobs=1)
    assert " full layers 2<" in plan_svg(found)


def test_a_value_is_cut_where_the_next_axis_stands() -> None:
    """Of eight axes and the step; its hint has it whole."""
    long = {"kind": "modules", "modules": ["layernorm", "core_attn", "mlp"]}
    vary: dict[str, list[Any]] = {
        "training.recompute": ["none", "selective", long],
        "parallelism.zero": [0, 1],
        "parallelism.order": ["tp-cp-ep-dp-pp"],
    }
    own = {"software": "megatron-core-2025", "parallelism__sequence_parallel": True, "cluster__gpus": 16}
    found = stepsim.plan(small(**own), vary=vary, axes="all", audit=60, jobs=1)
    drawn = plan_svg(found)
    cells = [text.strip() for text in lines_of(drawn)]
    assert any(cell.startswith("layer") and "…" in cell and cell.endswith("attn+mlp") for cell in cells)
    assert "layernorm+core_attn+mlp" not in cells
    assert "layernorm+core_attn+mlp" in drawn
