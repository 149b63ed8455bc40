"""What MLPerf's rounds run, by the recipes of their submissions."""

from __future__ import annotations

from dataclasses import replace

from validation_cases import A_CASE, MOE, a_case, case_document

from stepsim.calibration.cases.case import build
from stepsim.calibration.cases.preset import software_document
from stepsim.calibration.cases.recipes import fields_instead, recipe_fields, recipe_order
from stepsim.sim.scenario.software import get_software


def test_rounds_of_mlperf_pay_for_their_hosts_where_no_graph_runs() -> None:
    """Cisco's Megatron core and AMD's launch from Python at NeMo's price; what graphs launch has none."""
    nemo = get_software("nemo-2025").host
    counts = ("host_s_per_kernel", "launches_per_product", "launches_per_function", "launches_per_attention")
    price = {name: getattr(nemo, name) for name in counts}
    for name, gpu in (("5.0", "H100-SXM5-80GB"), ("5.0", "H200-SXM-141GB"), ("5.1", "H100-SXM5-80GB")):
        assert price.items() <= recipe_fields(f"mlperf-{name}", a_case(gpu, "fp8")).items()
    assert price.items() <= recipe_fields("mlperf-5.1", a_case("MI355X", "fp8")).items()
    for name, gpu in (("5.0", "GB200-NVL72"), ("5.1", "H200-SXM-141GB"), ("6.0", "H200-SXM-141GB")):
        assert not price.keys() & recipe_fields(f"mlperf-{name}", a_case(gpu, "fp8")).keys()


def test_kernels_of_rounds_without_nvidias_recipes() -> None:
    """AMD's SwiGLU of 5.1 is TransformerEngine's; MI325X of 6.0 reduces in FP32; Cisco and HPE turn heads."""
    amd, mitac = (recipe_fields(f"mlperf-{n}", a_case("MI325X", "fp8", tp=1)) for n in ("5.1", "6.0"))
    assert amd["activation_grad_joined"] is False
    assert "activation_grad_joined" not in mitac
    assert (mitac["main_grad_bytes"], mitac["fp8_parameters"], mitac["logits_fp32"]) == (4, False, False)
    cisco = recipe_fields("mlperf-5.1", a_case("H100-SXM5-80GB", "fp8"))
    assert (cisco["rope_takes_sines"], cisco["grouped_heads_copied"]) == (True, True)
    assert cisco["python_quantisers"] is True
    hpe = a_case("H200-SXM-141GB", "fp8", tp=1)
    hpe = replace(hpe, model=replace(hpe.model, hidden_size=4096))
    turned = {"fused_qkv_rope": False, "rope_takes_sines": True, "grouped_heads_copied": True}
    assert turned.items() <= recipe_fields("mlperf-5.1", hpe).items()


def test_heads_are_turned_inside_their_product_where_a_round_says_so() -> None:
    """FUSED_QKV_ROPE: 8B of 5.1, and all but DeepSeek-V3 of 6.0; else Megatron core copies grouped heads."""

    def turned(release: str, width: int, gpu: str = "GB200-NVL72") -> tuple[bool, bool]:
        case = a_case(gpu, "fp8", tp=1)
        fields = recipe_fields(release, replace(case, model=replace(case.model, hidden_size=width)))
        preset = get_software(release).kernels
        return tuple(
            bool(fields.get(name, getattr(preset, name)))
            for name in ("fused_qkv_rope", "grouped_heads_copied")
        )  # type: ignore[return-value]

    assert turned("mlperf-5.1", 4096) == turned("mlperf-6.0", 4096) == (True, False)
    assert turned("mlperf-6.0", 16384) == turned("mlperf-6.0", 2880) == (True, False)
    assert turned("mlperf-5.0", 16384) == turned("mlperf-5.1", 16384) == (False, True)
    assert turned("mlperf-5.1", 4096, "H100-SXM5-80GB") == (False, True)
    assert turned("mlperf-5.1", 4096, "MI355X") == turned("mlperf-6.0", 7168) == (False, False)


def test_amds_round_5_1_runs_aiters_attention_where_it_was_measured() -> None:
    """Its configuration asks for it; a case says cudnn, as of all of TransformerEngine's fused attention."""
    asked = fields_instead("mlperf-5.1", a_case("MI355X", "fp8"))
    assert asked == {"attention": "aiter"}
    case = replace(a_case("MI355X", "fp8"), software=replace(A_CASE.software, attention="cudnn"))
    document = software_document(case.software, "MI355X", None, asked)
    assert document["kernels"]["attention"] == "aiter"
    assert not fields_instead("mlperf-5.1", a_case("MI325X", "fp8"))
    assert software_document(case.software, "MI325X")["kernels"]["attention"] == "fa2"


def test_four_bits_of_an_8b_in_round_6_keep_their_kernels_where_tensors_are_split() -> None:
    """Cisco's log of 16 B300; the files that take them back are of eight bits."""
    kept = {"fused_quantise": True, "fp8_attention": True, "caches_mlp_weights": False}
    for tp in (1, 2):
        case = a_case("B300-SXM", "nvfp4", tp=tp)
        small = replace(case, model=replace(case.model, hidden_size=4096))
        assert kept.items() <= recipe_fields("mlperf-6.0", small).items()
    eight = a_case("GB300-NVL72", "fp8", tp=2)
    split = replace(eight, model=replace(eight.model, hidden_size=4096))
    assert not kept.keys() & recipe_fields("mlperf-6.0", split).keys()


def test_stages_of_a_replica_lie_side_by_side_in_mlperf_from_5_1_on() -> None:
    """Of 5.0 those of 512 GB200 and more; DeepSeek-V3 of 6.0 has the order of Megatron core."""
    staged = a_case("GB300-NVL72", "nvfp4", pp=8)
    expert = build(case_document({"model.moe": MOE, "layout.pp": 8}))
    small, large = (
        replace(
            a_case("GB200-NVL72", "fp8", pp=8), hardware=replace(staged.hardware, gpu="GB200-NVL72", gpus=n)
        )
        for n in (256, 512)
    )
    assert recipe_order("mlperf-6.0", staged) == recipe_order("mlperf-5.1", staged) == "tp-cp-ep-pp-dp"
    assert recipe_order("mlperf-5.0", large) == "tp-cp-ep-pp-dp"
    assert recipe_order("mlperf-5.0", small) is recipe_order("mlperf-6.0", expert) is None
    assert recipe_order("mlperf-6.0", a_case("GB300-NVL72", "nvfp4", pp=1)) is None


def test_mlperf_6_0_runs_what_its_recipes_name() -> None:
    """What is gathered, quantised and exchanged in how many bits, by precision and model."""
    llama, large = (
        recipe_fields("mlperf-6.0", replace(one, model=replace(one.model, hidden_size=width)))
        for one, width in (
            (a_case("B300-SXM", "nvfp4", tp=1), 4096),
            (a_case("GB300-NVL72", "nvfp4", tp=2), 16384),
        )
    )
    assert (llama["fp8_attention"], llama["fused_quantise"], llama["bucket_elements"]) == (True, True, 768e6)
    assert llama["attention_amax"] == "rank"
    earlier = a_case("B200-SXM-180GB", "nvfp4", tp=1)
    assert recipe_fields("mlperf-5.1", earlier)["attention_amax"] == "replicas"
    assert large == {"fp8_parameters": False, "fused_amax": False, "fused_qkv_rope": True}
    expert = {"model.moe": MOE, "hardware.gpu": "GB300-NVL72", "layout.precision": "mxfp8", "layout.tp": 1}
    deepseek, gpt_oss = (
        recipe_fields("mlperf-6.0", build(case_document(expert | {"model.hidden_size": width})))
        for width in (7168, 2880)
    )
    fused = {"moe_router_fusion": True, "fused_grouped_mlp": True}
    assert deepseek == {"fp8_attention": True, "scaled_first": False, **fused}
    named = ("fp8_parameters", "cp_comm", "fused_grouped_mlp")
    assert [gpt_oss[name] for name in named] == [False, "a2a", True]
