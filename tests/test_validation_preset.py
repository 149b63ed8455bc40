"""The software preset of a case: by its software block alone, with the case's own flags on top."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from validation_cases import case_document

import stepsim
from stepsim.calibration.cases.case import build
from stepsim.calibration.cases.framework_text import fields_said, preset_choices
from stepsim.calibration.cases.preset import (
    model_facts,
    preset_of,
    reported_rank,
    software_document,
    training_facts,
)
from stepsim.sim.scenario.software import get_software, software_names
from stepsim.sim.scenario.software.software import GROUP_OF, Software

SOFTWARE = build(case_document()).software


@pytest.mark.parametrize(
    ("framework", "year", "preset"),
    [
        ("Megatron-LM", 2021, "megatron-2021"),
        ("Megatron-LM", 2022, "megatron-2022-sp"),
        ("Megatron-LM (zero-bubble fork)", 2023, "megatron-zero-bubble-2023"),
        ("Megatron-LM 285068c8", 2023, "megatron-2023"),
        ("Megatron-LM core (TE 2.11, torch 2.10)", 2026, "megatron-core-2025"),
        ("Megatron-Core r0.8.0", 2024, "megatron-core-2024"),
        ("Megatron core (DeepEP dispatcher)", 2025, "megatron-core-2025"),
        ("Primus (Megatron core)", 2026, "primus-2025"),
        ("Megatron-Bridge / Megatron core 26.04.01", 2026, "megatron-bridge-2026"),
        ("NeMo / Megatron core", 2023, "nemo-2024"),
        ("NeMo 24.11 (Megatron core)", 2024, "nemo-2024"),
        ("NeMo / Megatron core", 2025, "nemo-2025"),
        ("NeMo AutoModel (FSDP2, TE, DeepEP)", 2025, "automodel-2025"),
        ("Megatron-DeepSpeed", 2022, "megatron-deepspeed-2022"),
        ("Megatron-DeepSpeed (CUDA_LAUNCH_BLOCKING=1)", 2024, "bigscience-2022"),
        ("DeepSpeed ZeRO-3 (Megatron model)", 2021, "deepspeed-zero3-2021"),
        ("DeepSpeed ZeRO-3 (ms-swift, transformers)", 2025, "generic-fsdp"),
        ("Aleph Alpha in-house (Megatron-style 3D)", 2023, "aleph-alpha-2023"),
        ("Meta in-house (FSDP + TP + PP)", 2024, "llama3-meta-2024"),
        ("DeepSeek HAI-LLM (DualPipe, DeepEP)", 2024, "deepseek-hai-2024"),
        ("nanotron", 2024, "nanotron-2024"),
        ("torchtitan (FSDP2)", 2025, "torchtitan-2025"),
        ("LLM Foundry / Composer (FSDP)", 2023, "llm-foundry-2023"),
        ("JAX MaxText", 2025, "maxtext-2025"),
        ("GPT-NeoX", 2022, "gpt-neox-2022"),
        ("NeMo Megatron 22.04", 2022, "megatron-2022-sp"),
        ("LitGPT", 2024, "generic-fsdp"),
        ("nanoGPT (PyTorch)", 2022, "generic-fsdp"),
        ("Levanter (JAX)", 2024, "generic-jax"),
        ("Hugging Face accelerate (FSDP)", 2024, "generic-fsdp"),
        ("InternEvo", 2023, "generic-megatron"),
        ("Colossal-AI", 2022, "generic-megatron-2022"),
        ("llm.c (CUDA C)", 2024, "llm-c-2024"),
    ],
)
def test_framework_and_year_decide(framework: str, year: int, preset: str) -> None:
    assert preset_of(replace(SOFTWARE, framework=framework, year=year)) == preset


@pytest.mark.parametrize("zero", [2, 3])
def test_a_trainer_that_shards_by_deepspeed_shards_as_deepspeed_does(zero: int) -> None:
    """Its kernels are those of a trainer that nobody read; its gathers and reductions are DeepSpeed's."""
    own = get_software("deepspeed-zero3-2021")
    others = fields_said("software", f"ms-swift (transformers, DeepSpeed ZeRO-{zero})")
    assert others == {name: getattr(getattr(own, GROUP_OF[name]), name) for name in others}
    assert others["implementation"] == "deepspeed"
    assert "implementation" not in fields_said("software", "Megatron-DeepSpeed")


def test_every_rule_names_a_preset_that_exists() -> None:
    assert {choice.preset for choice in preset_choices()} <= set(software_names())


def test_a_framework_without_a_preset_is_less_sure_than_its_like() -> None:
    """The same job under a stack that was read, and under one that nobody has read."""
    scenario = stepsim.load_scenario("llama3-8b-h100")
    read, unread = (
        stepsim.simulate(scenario.with_({"software": {"preset": preset}})).interval
        for preset in ("nemo-2025", "generic-megatron")
    )
    assert read is not None
    assert unread is not None
    assert unread.high_s / unread.low_s > read.high_s / read.low_s


def test_without_flags_the_preset_stands() -> None:
    silent = replace(SOFTWARE, tp_comm_overlap=None)
    assert software_document(silent) == {
        "preset": "megatron-2022-sp",
        "kernels": {"attention": "unfused", "torch_compile": False},
    }


@pytest.mark.parametrize(
    ("flag", "value", "field", "expected"),
    [
        ("attention", "fa2", "attention", "fa2"),
        ("torch_compile", True, "torch_compile", True),
        ("overlap_grad_reduce", True, "overlap_grad_reduce", True),
        ("overlap_grad_reduce", False, "overlap_grad_reduce", False),
        ("overlap_param_gather", True, "overlap_param_gather", True),
        ("tp_comm_overlap", True, "tp_comm_overlap", True),
        ("p2p_overlap", False, "point_to_point", "blocking"),
        ("p2p_overlap", True, "point_to_point", "async"),  # the preset blocks
        ("fused_kernels", False, "fused_norm", False),
        ("fused_kernels", False, "fused_softmax", False),
    ],
)
def test_a_flag_of_the_case_wins(flag: str, value: Any, field: str, expected: Any) -> None:
    changed: Any = {flag: value}
    assert software_document(replace(SOFTWARE, **changed))[GROUP_OF[field]][field] == expected


def test_overlapped_point_to_point_keeps_the_rule_of_a_preset_that_overlaps() -> None:
    software = replace(SOFTWARE, framework="NeMo / Megatron core", year=2025, p2p_overlap=True)
    assert get_software(preset_of(software)).pipeline.point_to_point == "prefetch"
    assert "pipeline" not in software_document(software)


def test_all_that_a_case_may_set_are_fields_of_the_software() -> None:
    loud = replace(
        SOFTWARE,
        fused_kernels=False,
        overlap_grad_reduce=True,
        overlap_param_gather=True,
        tp_comm_overlap=True,
        p2p_overlap=False,
    )
    document = software_document(loud)
    document.pop("preset")
    assert Software.model_validate(document)  # extra fields are forbidden


def test_who_prints_the_memory_of_which_rank() -> None:
    rounds, tests = "NeMo / Megatron core (MLPerf 5.0)", "Megatron core (memory of the last rank)"
    assert reported_rank(replace(SOFTWARE, framework="nanotron", year=2024)) == "first"
    assert reported_rank(replace(SOFTWARE, framework=rounds, year=2025)) == "first"
    assert reported_rank(replace(SOFTWARE, framework=tests, year=2025)) == "last"
    assert reported_rank(SOFTWARE) == "fullest"


def test_torchtitan_compiles_its_loss_with_the_model() -> None:
    def loss(**said: Any) -> str:
        run = replace(SOFTWARE, framework="torchtitan (FSDP2)", year=2025, **said)
        kernels = software_document(run).get("kernels", {})
        return str(kernels.get("cross_entropy", get_software("torchtitan-2025").kernels.cross_entropy))

    assert loss(torch_compile=True) == "compiled-torch"
    assert loss(torch_compile=False) == "eager"


def test_the_dispatcher_is_what_the_framework_says() -> None:
    for framework, dispatcher in (
        ("Megatron core (DeepEP dispatcher)", "deepep"),
        ("Megatron core (A2A dispatcher)", "alltoall"),
        ("Megatron core (HybridEP dispatcher)", "hybridep"),
        ("Megatron core", None),
    ):
        document = software_document(replace(SOFTWARE, framework=framework, year=2025))
        assert document.get("exchange", {}).get("moe_dispatcher") == dispatcher


@pytest.mark.parametrize(
    ("framework", "dated"),
    [
        ("Megatron core", True),
        ("NeMo AutoModel (FSDP2)", True),
        ("JAX MaxText", True),
        ("a trainer (FSDP)", False),
    ],
)
def test_what_products_on_hopper_lose_goes_by_the_year_of_the_run(framework: str, *, dated: bool) -> None:
    """Presets of 2025 say what libraries of that year did; generic ones have no year but that of the run."""
    for year, expected in ((2025, "two-passes"), (2026, "share")):
        document = software_document(replace(SOFTWARE, framework=framework, year=year))
        stated = document["kernels"].get("hopper_products")
        assert stated == (expected if dated == (year == 2026) else None)
        assert (stated or get_software(document["preset"]).kernels.hopper_products) == expected


def test_graphs_and_routers_of_experts_are_what_the_framework_says() -> None:
    said = "Megatron core (fused router, CUDA graphs but for experts)"
    document = software_document(replace(SOFTWARE, framework=said, year=2025))
    assert document["host"] == {"cuda_graphs": True, "graphs_leave_out_experts": True}
    assert document["kernels"]["moe_router_fusion"] is True


def test_graphs_are_what_the_framework_says() -> None:
    left_out = {"graphs_leave_out_experts": True, "graphs_leave_out_attention": True}
    for framework, host in (
        ("Megatron core (CUDA graphs)", {"cuda_graphs": True}),
        (
            "Megatron core (graphs of routers alone)",
            {"cuda_graphs": True} | left_out,
        ),
        ("Megatron core", {}),
    ):
        document = software_document(replace(SOFTWARE, framework=framework, year=2025))
        assert document.get("host", {}) == host


@pytest.mark.parametrize(
    ("words", "field", "expected"),
    [
        ("each projection gathers", "tp_gathers_each", True),
        ("synchronous tensor parallelism", "tp_async_backward", False),
        ("reduces in 16 bit", "reduce_grad_bytes", 2),
        ("InternEvo", "reduce_grad_bytes", 2),
        ("InternEvo", "main_grad_bytes", 2),
        ("InternEvo", "split_gate", True),
        ("FSDP1", "implementation", "fsdp1"),
        ("pipelined gathers", "gathers_ahead", True),
        ("profile-guided", "profile_guided", True),
        ("no profile", "profile_guided", False),
        ("unrolled layers", "unrolled", True),
        ("parameters gathered in 16 bit", "fp8_parameters", False),
        ("16-bit gradients", "main_grad_bytes", 2),
        ("FP32 head", "head_fp32", True),
        ("float8 all-gather", "fp8_parameters", True),
        ("16-bit moments", "moment_bytes", 2),
        ("grouped experts", "grouped_gemm", "stacked"),
        ("DeepSpeed ZeRO-3", "implementation", "deepspeed"),
        ("DeepSpeed ZeRO-2", "main_grad_bytes", 2),
        ("DeepSpeed ZeRO-2", "bucket_elements", 5e8),
        ("shared key and value heads", "shared_kv_heads", True),
        ("loss in 512 chunks", "loss_chunks", 512),
        ("scatters combined to 8 MiB", "combine_scatter_bytes", 8.0 * 2**20),
    ],
)
def test_words_of_the_framework_are_fields(words: str, field: str, expected: Any) -> None:
    document = software_document(replace(SOFTWARE, framework=f"Trainer ({words})"))
    assert document[GROUP_OF[field]][field] == expected
    document.pop("preset")
    assert Software.model_validate(document)  # extra fields are forbidden


def test_what_a_step_trains_on_is_what_the_framework_says() -> None:
    for framework, facts in (
        ("TRL (FSDP2; checkpoints on the host)", {"activation_offload": True}),
        ("NeMo 24.12 (Megatron core; packs of documents of 200 tokens)", {"document_length": 200}),
        ("TRL (FSDP2)", {}),
    ):
        assert training_facts(replace(SOFTWARE, framework=framework)) == facts


@pytest.mark.parametrize(
    ("framework", "facts"),
    [
        ("Pax (JAX; without dropout)", {"dropout": 0.0}),
        ("llm.c (CUDA C)", {"dropout": 0.0}),
        ("Pax (JAX)", {}),
    ],
)
def test_what_the_framework_says_of_its_models(framework: str, facts: dict[str, Any]) -> None:
    assert model_facts(replace(SOFTWARE, framework=framework, year=2024)) == facts
