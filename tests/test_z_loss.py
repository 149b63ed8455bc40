"""A z-loss beside the loss: its kernels, its memory, and which frameworks have it where."""

from __future__ import annotations

from typing import Any

import pytest
from framework_files import MAXTEXT, NANO, OLMO
from importing import imported
from megatron_scripts import args
from small_scenarios import every_op, lowered, scenario

from stepsim.sim.lowering.layers.local_shape import local_shape_of
from stepsim.sim.lowering.layers.loss import logits_bytes
from stepsim.sim.program.program import Compute
from stepsim.sim.scenario.errors import ScenarioError
from stepsim.sim.scenario.load import scenario_from_document
from stepsim.sim.scenario.models import Scenario


def job(way: str, loss: str = "fused", *, fp32: bool = False, **fields: Any) -> Scenario:
    run = scenario(software="megatron-core-2025", **fields)
    kernels = {"z_loss": way, "cross_entropy": loss, "logits_fp32": fp32}
    return run.with_({f"software.kernels.{name}": value for name, value in kernels.items()})


def z_bytes(run: Scenario) -> float:
    """Bytes that kernels of a z-loss move for each logit of the last stage's rank."""
    local = local_shape_of(run)
    (program,) = lowered(run).programs.classes
    moved = sum(
        count * op.work.bytes
        for op, count in every_op(program)
        if op.name.startswith("z-loss") and isinstance(op.work, Compute)
    )
    return moved / (local.tokens * local.vocabulary * run.num_microbatches)


@pytest.mark.parametrize(
    ("way", "loss", "fp32", "each"),
    [
        ("none", "fused", False, 0),
        ("within", "fused", False, 0),  # lse_square_scale
        ("within", "compiled-torch", True, 0),
        ("within", "vocab-parallel", True, 8 + 12),
        # cast 6, maximum 4, less it 8, exponentials 8, sum 4, divided 8; times 8, cast 6, added in 16 bits 6
        ("apart", "fused", False, 38 + 20),
        ("apart", "eager", True, 24 + 16 + 8 + 12),
    ],
)
def test_a_z_loss_moves_what_its_operators_read_and_write(way: str, loss: str, fp32: bool, each: int) -> None:
    assert z_bytes(job(way, loss, fp32=fp32)) == pytest.approx(each)


def test_a_z_loss_casts_nothing_where_all_is_in_fp32() -> None:
    """maximum 4, less it 8, exponentials 8, sum 4, divided 8; times 8, added 12."""
    assert z_bytes(job("apart", precision="fp32")) == pytest.approx(32 + 20)


def test_a_z_loss_apart_holds_three_logits_of_fp32() -> None:
    """JUPITER's trainer took 7 % of 96 GB more with it (OpenEuroLLM/oellm-autoexp at 0f55a156,
    oellm_32b_dense/SPEED_RESULTS.md): of 8,192 tokens and 65,536 logits, three times 2.1 GB."""
    run, plain = job("apart"), job("none")
    local = local_shape_of(run)
    more = logits_bytes(local, run.software) - logits_bytes(local, plain.software)
    assert more == 12.0 * local.tokens * local.vocabulary
    assert pytest.approx(0.07 * 96e9, rel=0.05) == 12 * 8_192 * 65_536


def test_torchs_own_loss_has_none_within() -> None:
    with pytest.raises(ScenarioError) as raised:
        job("within", "eager", fp32=True)
    assert "software.kernels.z_loss" in str(raised.value)


Z = "software.kernels.z_loss"
TE = "--cross-entropy-loss-fusion --cross-entropy-fusion-impl te "
Z_OLMO = OLMO + "softmax_auxiliary_loss: true\n"


@pytest.mark.parametrize(
    ("files", "gpus", "way"),
    [
        (args("--output-z-loss-coeff 1e-4"), "64", "within"),
        (args(f"{TE} --output-z-loss-coeff 1e-4"), "64", "apart"),
        (args(TE), "64", "none"),
        ({"run.yaml": NANO.replace("hidden_act:", "z_loss_enabled: true, hidden_act:")}, "16", "within"),
        ({"run.yaml": NANO.replace("hidden_act:", "z_loss_enabled: false, hidden_act:")}, "16", "none"),
        ({"run.yml": MAXTEXT + "z_loss_multiplier: 0.0001\n"}, "32", "within"),
        ({"OLMo.yaml": Z_OLMO}, "64", "apart"),
        ({"OLMo.yaml": Z_OLMO + "fused_loss: true\n"}, "64", "within"),
        ({"OLMo.yaml": OLMO}, "64", "none"),
    ],
)
def test_a_frameworks_option_is_carried(files: dict[str, str], gpus: str, way: str) -> None:
    made = imported(files, {"gpus": gpus})
    run = scenario_from_document(made.document, "imported")
    assert run.software.kernels.z_loss == way, made.notes
