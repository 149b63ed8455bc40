"""What recipes of one release differ in, and which preset each round and release has."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from validation_cases import A_CASE, MOE, a_case, case_document

from stepsim.calibration.cases.case import CaseHardware, build
from stepsim.calibration.cases.preset import preset_of, software_document
from stepsim.calibration.cases.recipes import fields_instead, recipe_facts, recipe_fields
from stepsim.calibration.cases.to_scenario import scenario_document
from stepsim.sim.scenario.software import get_software, software_names
from stepsim.sim.scenario.software.software import GROUP_OF


def test_every_fact_is_of_presets_and_fields_that_there_are() -> None:
    for fact in recipe_facts():
        assert set(fact.presets) <= set(software_names())
        assert fact.fields or fact.instead or fact.order
        assert {*fact.fields, *fact.instead} <= set(GROUP_OF)


def test_a_later_fact_holds_over_an_earlier_one() -> None:
    """MLPerf 5.1 gathers no parameters in four bits; without tensor parallelism activations quantise."""
    split, whole = (recipe_fields("mlperf-5.1", a_case("GB200-NVL72", "nvfp4", tp=tp)) for tp in (4, 1))
    assert split == {"fp8_parameters": False, "untuned_casts": True}
    fused = {"fused_quantise": True, "caches_mlp_weights": False}
    assert whole == split | {"fp8_attention": True, "attention_amax": "replicas", **fused}
    cisco = recipe_fields("mlperf-5.1", a_case("H100-SXM5-80GB", "fp8", tp=1))
    assert not cisco["fused_quantise"]


@pytest.mark.parametrize("framework", ["accelerate", "Megatron-LM core", "Pax (JAX)"])
def test_modules_of_transformer_engine_cost_hosts_the_same_under_any_trainer(framework: str) -> None:
    """Modules that a trainer puts in place of torch's cost a GEMM; whole layers attention and functions
    besides. Megatron's presets have them, XLA launches none."""
    core = get_software("megatron-core-2025").host
    module = {"launches_per_product": core.launches_per_product}
    between = ("launches_per_attention", "launches_per_function")
    layer = module | {name: getattr(core, name) for name in between}
    for words, fields in (("", {}), ("TransformerEngine", module), ("layers of Transformer Engine", layer)):
        software = replace(A_CASE.software, framework=f"{framework} {words}", year=2025)
        found = recipe_fields(preset_of(software), replace(A_CASE, software=software))
        told = {name: value for name, value in found.items() if name in layer}
        assert told == (fields if framework == "accelerate" else {})


@pytest.mark.parametrize(
    ("release", "weighted"),
    [("Megatron core 0.12; DeepEP", False), ("Megatron core 0.9", False), ("Megatron core 0.13", True),
     ("Megatron core 0.17 (a2a dispatcher)", True), ("Megatron core", True)],
)  # fmt: skip
def test_megatron_core_weighs_rows_in_the_activation_from_0_13_on(release: str, weighted: bool) -> None:
    case = build(case_document({"model.moe": MOE}))
    run = replace(case, software=replace(case.software, framework=release, year=2025))
    fields = recipe_fields(preset_of(run.software), run)
    preset = get_software("megatron-core-2025")
    assert fields.get("weighted_activation", preset.kernels.weighted_activation) is weighted


def test_a_text_may_say_that_attention_has_16_bits_where_recipes_have_both() -> None:
    said = replace(A_CASE.software, framework="NeMo 26.04 (MLPerf 6.0), 16-bit attention", year=2026)
    document = software_document(said, "B300-SXM", {"fp8_attention": True})
    assert document["kernels"]["fp8_attention"] is False


@pytest.mark.parametrize("name", ["megatron-bridge-2025", "megatron-bridge-2026", "megatron-bridge-26.06"])
def test_products_of_four_bits_overlap_no_tensor_parallelism_in_megatron_bridge(name: str) -> None:
    assert get_software(name).exchange.tp_comm_overlap
    assert recipe_fields(name, a_case("GB200-NVL72", "nvfp4"))["tp_comm_overlap"] is False
    assert "tp_comm_overlap" not in recipe_fields(name, a_case("GB200-NVL72", "mxfp8"))


@pytest.mark.parametrize(
    ("name", "off"), [("megatron-core-2024", True), ("megatron-core-2025", True), ("nemo-2025", False)]
)
def test_plain_megatron_core_overlaps_no_tensor_parallelism_by_default(name: str, off: bool) -> None:
    """Its argument is off by default, of models with experts and without; recipes of NeMo give it."""
    for case in (a_case("H100-SXM5-80GB", "bf16", tp=4), build(case_document({"model.moe": MOE}))):
        assert get_software(name).exchange.tp_comm_overlap
        assert (recipe_fields(name, case).get("tp_comm_overlap") is False) is off
    assert "tp_comm_overlap" not in recipe_fields(name, a_case("H100-SXM5-80GB", "bf16", tp=1))


@pytest.mark.parametrize(
    ("gpu", "release", "vpp", "expected"),
    [
        ("B200-SXM-180GB", "26.02", 4, {"moe_dispatcher": "alltoall", "cuda_graphs": False}),
        ("B200-SXM-180GB", "26.04.01", 1, {"moe_dispatcher": "alltoall", "cuda_graphs": False}),
        ("B300-SXM", "26.04", 1, {"moe_dispatcher": "alltoall", "cuda_graphs": False}),
        (
            "B300-SXM", "26.02.01", 4,
            {"moe_dispatcher": "alltoall", "cuda_graphs": False, "moe_a2a_overlap": True},
        ),
        ("B300-SXM", "26.04.01", 1, {}),
        ("GB300-NVL72", "26.02", 1, {}),
    ],
)  # fmt: skip
def test_hosts_of_eight_blackwells_run_qwen3_235b_without_hybridep_and_graphs(
    gpu: str, release: str, vpp: int, expected: dict[str, object]
) -> None:
    """As recipes of Megatron-Bridge have it until April 2026; the framework's text says the release."""
    case = build(case_document({"model.moe": MOE, "model.hidden_size": 4096, "layout.tp": 1}))
    named = replace(case.software, framework=f"Megatron-Bridge / Megatron core {release}", year=2026)
    run = replace(
        case, hardware=replace(case.hardware, gpu=gpu), layout=replace(case.layout, vpp=vpp), software=named
    )
    assert recipe_fields(preset_of(named), run) == expected


PARTIAL = {"cuda_graphs": True, "graphs_leave_out_experts": True}


LEFT_OUT = {"graphs_leave_out_experts": True, "graphs_leave_out_attention": True}


DEEPEP = {"cuda_graphs": False, "grouped_gemm": "streams", "moe_dispatcher": "deepep"}


@pytest.mark.parametrize(
    ("release", "gpu", "precision", "width", "expected"),
    [
        ("25.09", "GB200-NVL72", "fp8", 2048, {"cuda_graphs": True}),
        ("25.09", "B200-SXM", "fp8", 2048, {"cuda_graphs": True}),
        ("25.09", "B200-SXM", "mxfp8", 4096, {}),
        ("25.09", "H100-SXM5-80GB", "fp8", 2048, {}),
        (
            "25.11",
            "GB300-NVL72",
            "mxfp8",
            7168,
            PARTIAL | {"moe_dispatcher": "hybridep", "norm_casts_blocks": True},
        ),
        (
            "25.11",
            "GB200-NVL72",
            "mxfp8",
            7168,
            PARTIAL
            | {"graphs_leave_out_attention": True, "moe_dispatcher": "hybridep", "norm_casts_blocks": True},
        ),
        ("25.11", "B200-SXM", "mxfp8", 7168, {}),
        ("25.11", "GB300-NVL72", "mxfp8", 2048, PARTIAL),
        ("25.11", "B200-SXM", "mxfp8", 4096, {"moe_a2a_overlap": True}),
        ("25.11", "H100-SXM5-80GB", "fp8", 2048, {"moe_a2a_overlap": True}),
        ("25.11", "H100-SXM5-80GB", "bf16", 2880, {"fused_residual": False, "moe_dispatcher": "alltoall"}),
        ("26.02", "H100-SXM5-80GB", "fp8", 2048, DEEPEP | {"arrivals_indexed_by_torch": True}),
        (
            "26.02",
            "H100-SXM5-80GB",
            "bf16",
            4096,
            DEEPEP
            | {"arrivals_indexed_by_torch": True, "moe_dispatcher": "alltoall", "moe_a2a_overlap": True},
        ),
        ("26.04", "H100-SXM5-80GB", "fp8", 7168, DEEPEP),
        ("26.02", "GB300-NVL72", "mxfp8", 2048, {"graphs_leave_out_attention": True}),
        ("26.02", "GB200-NVL72", "bf16", 2048, {}),
        ("26.06", "GB200-NVL72", "bf16", 2048, {"graphs_leave_out_experts": True, "grouped_gemm": "streams"}),
        ("26.06", "GB300-NVL72", "bf16", 2048, LEFT_OUT | {"grouped_gemm": "streams"}),
        ("26.06", "GB300-NVL72", "fp8", 2048, LEFT_OUT | {"grouped_gemm": "streams"}),
        (
            "26.06",
            "GB300-NVL72",
            "mxfp8",
            2048,
            {"fp8_attention": True, "fused_grouped_mlp": True, "moe_a2a_overlap": True},
        ),
        ("26.06", "GB300-NVL72", "bf16", 4096, {"grouped_gemm": "streams"}),
        ("26.04", "B200-SXM", "mxfp8", 7168, {"cuda_graphs": False}),
        ("26.04.01", "B200-SXM", "mxfp8", 7168, {"moe_dispatcher": "deepep", "moe_a2a_overlap": True}),
    ],
)
def test_experts_of_megatron_bridge_run_what_the_recipe_of_their_release_has(
    release: str, gpu: str, precision: str, width: int, expected: dict[str, Any]
) -> None:
    """Graphs hold experts where rows are padded (25.09), and no others."""
    layout = {"layout.tp": 1, "layout.pp": 8, "layout.vpp": 2, "layout.precision": precision}
    model = {"model.moe": MOE, "model.hidden_size": width, "model.num_attention_heads": 128}
    named = {
        "software.framework": f"Megatron-Bridge / Megatron core {release}",
        "software.year": 2000 + int(release[:2]),
    }
    run = build(case_document(layout | model | named | {"hardware.gpu": gpu}))
    found = recipe_fields(preset_of(run.software), run)
    assert {name: value for name, value in found.items() if name != "moe_router_fusion"} == expected


def test_kimi_k2_is_not_told_by_the_width_of_deepseek_v3() -> None:
    fields = {"model.moe": MOE, "model.hidden_size": 7168, "layout.precision": "mxfp8", "layout.tp": 1}
    named = {
        "software.framework": "Megatron-Bridge 26.04",
        "software.year": 2026,
        "hardware.gpu": "GB300-NVL72",
    }
    kimi, deepseek = (
        build(case_document(fields | named | {"model.num_attention_heads": heads})) for heads in (64, 128)
    )
    assert "cuda_graphs" not in recipe_fields("megatron-bridge-2026", kimi)
    assert recipe_fields("megatron-bridge-2026", deepseek)["cuda_graphs"] is False


@pytest.mark.parametrize(("width", "more"), [(2048, {"reduce": "last"}), (7168, {})])
def test_models_of_automodel_with_experts_have_two_matrices_to_a_gate(
    width: int, more: dict[str, Any]
) -> None:
    fields = {"model.moe": MOE, "model.hidden_size": width, "layout.tp": 1}
    run = build(
        case_document(fields | {"software.framework": "NeMo AutoModel (FSDP2)", "software.year": 2025})
    )
    assert recipe_fields("automodel-2025", run) == {"moe_router_fusion": True, "split_gate": True} | more


def test_a_gather_that_a_case_assumes_beside_kernels_is_none_where_the_recipe_has_none() -> None:
    """Qwen3 235B of 25.11 on B200, in MXFP8 alone."""
    fields = {"model.moe": MOE, "model.hidden_size": 4096, "layout.tp": 1, "hardware.gpu": "B200-SXM"}
    named = {"software.framework": "Megatron-Bridge / Megatron core 25.11", "software.year": 2025}
    instead = [
        fields_instead(
            "megatron-bridge-2025", build(case_document(fields | named | {"layout.precision": one}))
        )
        for one in ("mxfp8", "bf16")
    ]
    assert instead == [{"overlap_param_gather": False}, {}]


def test_experts_of_megatron_bridge_are_one_kernel_once_megatron_has_it() -> None:
    """Megatron-LM pull request 4636, of May 2026."""
    found = [get_software(f"megatron-bridge-{at}").kernels.grouped_gemm for at in ("2025", "2026", "26.06")]
    assert found == ["streams", "streams", "one-kernel"]


def test_experts_of_torchtitan_are_one_weight() -> None:
    """models/moe.py, GroupedExperts: torch._grouped_mm."""
    assert get_software("torchtitan-2025").kernels.grouped_gemm == "stacked"


def test_torchtitan_gathers_in_eight_bits_where_its_command_says_so() -> None:
    h200, h100 = (a_case(gpu, "fp8") for gpu in ("H200-SXM-141GB", "H100-SXM-HBM2e-96GB-500W"))
    small, large = (replace(h200, model=replace(h200.model, hidden_size=width)) for width in (4096, 8192))
    assert recipe_fields("torchtitan-2025", small) == {"fp8_parameters": True}
    assert recipe_fields("torchtitan-2025", large) == recipe_fields("torchtitan-2024", small) == {}
    assert recipe_fields("torchtitan-2025", h100) == {}
    assert not get_software("torchtitan-2025").kernels.fp8_parameters


def test_buckets_of_one_host_are_what_its_logs_print() -> None:
    case = a_case("B200-SXM-180GB", "nvfp4")
    one, four = (replace(case, hardware=each) for each in hosts(1, 4))
    assert recipe_fields("mlperf-5.1", one)["bucket_elements"] == 768e6
    assert "bucket_elements" not in recipe_fields("mlperf-5.1", four)


def test_checkpoints_of_llm_foundry_stop_early_where_its_tables_are_of_torch_2_1() -> None:
    """By the image that the source names beside each row."""
    name = "llm-foundry-2023"
    assert get_software(name).kernels.recompute_stops_early
    for gpu in ("H100-SXM5-80GB", "A100-SXM4-80GB"):
        assert recipe_fields(name, a_case(gpu, "bf16")) == {}
    for gpu, precision in (("A100-SXM4-40GB", "bf16"), ("H100-SXM5-80GB", "fp8")):
        assert recipe_fields(name, a_case(gpu, precision))["recompute_stops_early"] is False
    software = replace(A_CASE.software, framework="MosaicML examples (Composer, FSDP)")  # of torch 1.13 all
    examples = replace(a_case("A100-SXM4-80GB", "bf16"), software=software)
    assert recipe_fields(name, examples)["recompute_stops_early"] is False


def test_a_run_whose_code_leaves_the_overlap_out_has_none_whatever_its_case_says() -> None:
    """Cisco's pretrain.py of MLPerf 5.1 appends no MegatronCommOverlapCallback; NVIDIA's does."""
    software = replace(A_CASE.software, framework="NeMo / Megatron core (MLPerf 5.1)", tp_comm_overlap=True)
    cisco, nvidia = (
        scenario_document(replace(a_case(gpu, "fp8", tp=2), software=software))["software"]
        for gpu in ("H100-SXM5-80GB", "GB200-NVL72")
    )
    assert cisco["exchange"]["tp_comm_overlap"] is False
    assert cisco["gradients"]["bucket_elements"] == 64
    assert nvidia["exchange"]["tp_comm_overlap"] is True
    assert "bucket_elements" not in nvidia.get("gradients", {})


@pytest.mark.parametrize(("width", "grad_bytes"), [(12288, 2), (18432, 2), (4096, 4)])
def test_gradients_of_nemo_1_are_16_bit_where_the_recipe_of_a_model_says_so(
    width: int, grad_bytes: int
) -> None:
    """optim.grad_sync_dtype bf16: in the files of GPT-3 175B and Nemotron-4 340B."""
    name = "nemo-2024"
    case = replace(A_CASE, model=replace(A_CASE.model, hidden_size=width))
    fields = recipe_fields(name, case)
    assert fields.get("main_grad_bytes", get_software(name).gradients.main_grad_bytes) == grad_bytes


def test_gpt_3_of_2025_ran_as_nemo_1_does_without_cudnns_attention() -> None:
    wide = replace(A_CASE, model=replace(A_CASE.model, hidden_size=12288))
    assert fields_instead("nemo-2025", wide) == {"attention": "fa2"}
    assert fields_instead("nemo-2025", A_CASE) == {}
    nobody_said = replace(
        wide, software=replace(wide.software, framework="NeMo", year=2025, attention="cudnn")
    )
    for case, assumed in ((nobody_said, False), (replace(nobody_said, model=A_CASE.model), True)):
        kernels = scenario_document(replace(case, assumed=("software.attention",)))["software"]["kernels"]
        assert kernels["attention"] == ("cudnn" if assumed else "fa2")
        assert kernels.get("attention_assumed", False) == assumed


@pytest.mark.parametrize(
    ("gpu", "precision", "width", "graphs"),
    [
        ("GB200-NVL72", "fp8", 4096, True),
        ("GB200-NVL72", "fp8", 18432, True),
        ("GB200-NVL72", "bf16", 18432, True),  # DGX Cloud's, over NeMo's own table
        ("GB300-NVL72", "bf16", 6144, True),
        ("GB300-NVL72", "bf16", 16384, False),
        ("GB200-NVL72", "fp8", 8192, False),
        ("B200-SXM-180GB", "fp8", 4096, False),
    ],
)
def test_nemos_recipes_of_2025_launch_graphs_where_grace_is_the_host(
    gpu: str, precision: str, width: int, graphs: bool
) -> None:
    case = a_case(gpu, precision)
    case = replace(case, model=replace(case.model, hidden_size=width, moe=None))
    assert recipe_fields("nemo-2025", case).get("cuda_graphs", False) == graphs


@pytest.mark.parametrize(("width", "graphs"), [(4096, True), (6144, False)])
def test_of_nemos_experts_of_2025_only_mixtral_8x7b_has_graphs(width: int, graphs: bool) -> None:
    """The width of Mixtral 8x22B is that of Nemotron 15B, which has them."""
    case = build(case_document({"model.moe": MOE, "model.hidden_size": width, "hardware.gpu": "GB200-NVL72"}))
    case = replace(case, layout=replace(case.layout, precision="fp8"))
    assert recipe_fields("nemo-2025", case).get("cuda_graphs", False) == graphs


def hosts(*counts: int) -> list[CaseHardware]:
    return [replace(A_CASE.hardware, gpu="B200-SXM-180GB", gpus=8 * n, gpus_per_node=8) for n in counts]


def test_other_presets_have_no_recipes() -> None:
    for preset in ("megatron-core-2025", "nemo-2025", "torchtitan-2025"):
        assert recipe_fields(preset, a_case("GB200-NVL72", "mxfp8", tp=1)) == {}


def test_what_the_case_says_holds_over_the_recipe() -> None:
    software = replace(A_CASE.software, framework="Megatron-Bridge 26.06", attention="cudnn")
    recipe = {"cuda_graphs": False, "attention": "fa2"}
    document = software_document(software, "H100-SXM5-80GB", recipe)
    assert document["host"]["cuda_graphs"] is False
    assert document["kernels"]["attention"] == "cudnn"


@pytest.mark.parametrize(
    ("framework", "preset"),
    [
        ("NeMo / Megatron core (MLPerf Training v3.0)", "mlperf-3.0"),
        ("NeMo / Megatron core (MLPerf Training v3.1)", "mlperf-3.1"),
        ("NeMo / Megatron core (MLPerf Training v4.1)", "mlperf-4"),
        ("NeMo / Megatron core (MLPerf Training v5.0)", "mlperf-5.0"),
        ("NeMo / Megatron core (MLPerf Training v5.1)", "mlperf-5.1"),
        ("NeMo 26.04, Megatron Bridge (MLPerf 6.0)", "mlperf-6.0"),
        ("Megatron-Bridge / Megatron core 26.06", "megatron-bridge-26.06"),
        ("Megatron-Bridge / Megatron core 26.04.01", "megatron-bridge-2026"),
    ],
)
def test_rounds_and_releases_have_presets_of_their_own(framework: str, preset: str) -> None:
    assert preset_of(replace(A_CASE.software, framework=framework, year=2026)) == preset


@pytest.mark.parametrize(
    ("preset", "width", "heads", "fused"),
    [
        ("nemo-2025", 7168, 128, False),
        ("megatron-core-2025", 5120, 128, False),
        ("megatron-core-2025", 5120, 40, None),  # Qwen's width, whose heads are not latent
        ("megatron-bridge-2026", 7168, 128, None),
    ],
)
def test_latent_attention_has_its_kernel_where_a_recipe_asks_for_what_is_experimental(
    preset: str, width: int, heads: int, fused: bool | None
) -> None:
    expert = {"model.moe": MOE, "model.hidden_size": width, "model.num_attention_heads": heads}
    assert recipe_fields(preset, build(case_document(expert))).get("fused_rope") is fused
