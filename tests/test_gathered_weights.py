"""Weights that are cast to 8 bits before they are gathered: what crosses the wire and what is held."""

from __future__ import annotations

import pytest
from precision_runs import bytes_of, run_of
from small_scenarios import every_op, lowered, payloads

from stepsim.sim.program.program import Collective
from stepsim.sim.scenario.errors import ScenarioError
from stepsim.sim.simulate import simulate


def test_quantised_parameters_are_gathered_quantised() -> None:
    def gathered(precision: str) -> float:
        run = run_of(precision, {"fp8_parameters": True}, dp=8, zero=1, vocab_size=16)
        return payloads(lowered(run).programs.classes[0], "dp")["all_gather"]

    assert gathered("fp8") / gathered("bf16") == pytest.approx(0.5, rel=2e-2)


@pytest.mark.parametrize(
    ("preset", "zero", "precision", "share"),
    [
        ("torchtitan-2025", 2, "fp8", 0.5),
        ("torchtitan-2025", 3, "fp8", 0.5),
        ("megatron-core-2025", 3, "fp8", 0.5),
        ("megatron-core-2025", 3, "mxfp8", (1 + 1 / 32) / 2),  # the copy of each pass
    ],
)
def test_fsdp_gathers_and_holds_quantised_parameters(
    preset: str, zero: int, precision: str, share: float
) -> None:
    def of_layers(flag: bool) -> tuple[float, float]:
        def both(layers: int) -> tuple[float, float]:
            run = run_of(
                precision,
                {"fp8_parameters": flag},
                preset=preset,
                dp=8,
                zero=zero,
                num_layers=layers,
                vocab_size=16,
            )
            whole = simulate(run).memory[0].terms["gathered"]
            return payloads(lowered(run).programs.classes[0], "dp")["all_gather"], whole

        few, many = both(3), both(4)
        return many[0] - few[0], many[1]

    (sent, held), (sent_wide, held_wide) = of_layers(True), of_layers(False)
    assert sent / sent_wide == pytest.approx(share, rel=2e-2)
    assert held / held_wide == pytest.approx(share, rel=2e-2)


@pytest.mark.parametrize(("preset", "ratio"), [("torchtitan-2025", 1.0), ("megatron-core-2025", 0.5)])
def test_torchao_casts_no_experts_before_they_are_gathered(preset: str, ratio: float) -> None:
    def gathered(flag: bool) -> float:
        experts = {"num_experts": 8, "topk": 2, "expert_ffn_hidden_size": 512}
        run = run_of("fp8", {"fp8_parameters": flag}, preset=preset, dp=8, ep=2, zero=3, moe=experts)
        ops = every_op(lowered(run).programs.classes[0])
        return sum(
            count * op.work.transfer.bytes
            for op, count in ops
            if isinstance(op.work, Collective)
            and op.name == "parameter all_gather"
            and op.work.communicator == "edp"
        )

    assert gathered(True) / gathered(False) == pytest.approx(ratio, rel=1e-6)


def test_what_is_copied_into_place_has_the_bytes_that_were_gathered() -> None:
    """torch's FSDP2 copies weights out of the buffer that it gathers into."""

    def of_layers(flag: bool) -> float:
        few, many = (
            bytes_of(
                run_of(
                    "fp8", {"fp8_parameters": flag}, preset="torchtitan-2025", dp=8, zero=3, num_layers=layers
                ),
                "parameter copy-out",
            )
            for layers in (3, 4)
        )
        return many - few

    assert 0 < of_layers(True) == pytest.approx(of_layers(False) / 2, rel=2e-2)


def test_xla_gathers_matrices_in_8_bits_where_they_are_cast_first() -> None:
    def gathered(flag: bool) -> float:
        def whole(layers: int) -> float:
            run = run_of("fp8", {"fp8_parameters": flag}, "maxtext-2025", dp=8, zero=3, num_layers=layers)
            return payloads(lowered(run).programs.classes[0], "dp")["all_gather"]

        return whole(4) - whole(3)

    assert 0 < gathered(True) == pytest.approx(gathered(False) / 2, rel=2e-2)


@pytest.mark.parametrize("implementation", ["fsdp1", "deepspeed"])
def test_what_gathers_16_bits_refuses_weights_of_8(implementation: str) -> None:
    def built(precision: str, zero: int) -> None:
        fields = {"fp8_parameters": True, "implementation": implementation, "persistent_elements": 0.0}
        run_of(precision, fields, dp=8, zero=zero)

    built("bf16", 3)
    built("fp8", 1)
    with pytest.raises(ScenarioError, match=implementation) as refused:
        built("fp8", 3)
    assert [problem.path for problem in refused.value.problems] == ["software.kernels.fp8_parameters"]
