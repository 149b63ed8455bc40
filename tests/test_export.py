"""A scenario as another framework's file: what is written reads back as the same run, all else is refused
by field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from importing import scenario as imported_scenario
from typer.testing import CliRunner

from stepsim.cli.main import app
from stepsim.sim.scenario.errors import ScenarioError
from stepsim.sim.scenario.importers.entry import import_files
from stepsim.sim.scenario.importers.export import differences, export, left_out
from stepsim.sim.scenario.importers.registry import EXPORTERS
from stepsim.sim.scenario.load import load_scenario, scenario_from_document
from stepsim.sim.scenario.models import Scenario

PRESETS = {
    "megatron-lm": ("megatron-core-2025", "megatron-core-2024", "megatron-2023"),
    "torchtitan": ("torchtitan-2025",),
    "nanotron": ("nanotron-2024",),
    "deepspeed": ("megatron-deepspeed-2022",),
    "megatron-bridge": ("megatron-bridge-2026",),
}
"""The software that a framework's own files are of."""

MODELS = ("llama3-8b", "llama2-7b", "llama3-70b", "gpt-22b", "mixtral-8x7b", "gpt3-175b")


@st.composite
def drawn(draw: st.DrawFn, framework: str) -> Scenario:
    """A scenario around the framework's reach: most can be said, some cannot."""
    model: dict[str, Any] = {"preset": draw(st.sampled_from(MODELS))}
    tp, pp = draw(st.sampled_from([1, 2, 4, 8])), draw(st.sampled_from([1, 2, 4]))
    cp, dp = draw(st.sampled_from([1, 1, 2])), draw(st.sampled_from([1, 2, 8]))
    vpp = draw(st.sampled_from([1, 1, 2])) if pp > 1 else 1
    micro = draw(st.sampled_from([1, 2]))
    always = framework in ("torchtitan", "megatron-bridge", "nanotron")
    document: dict[str, Any] = {
        "model": model,
        "cluster": {"gpu": "H100-SXM5-80GB", "gpus": tp * pp * cp * dp, "interconnect": "ib-ndr400-x8"},
        "parallelism": {
            "tp": tp, "pp": pp, "cp": cp, "vpp": vpp,
            "sequence_parallel": tp > 1 and (always or draw(st.booleans())),
            "zero": draw(st.sampled_from([0, 1, 1, 3])) if dp * cp > 1 else 0,
        },
        "training": {
            "global_batch": micro * dp * pp * draw(st.sampled_from([1, 4])), "micro_batch": micro,
            "seq_length": 4096,
            "precision": draw(st.sampled_from(["bf16", "bf16", "fp16", "fp8"])),
            "recompute": draw(st.sampled_from(["none", "full", "selective", "op_selective"])),
        },
        "schedule": "none" if pp == 1 else "1f1b" if vpp == 1 else "interleaved",
        "software": {"preset": draw(st.sampled_from(PRESETS[framework])),
        "overlap_grad_reduce": draw(st.booleans())},
    }  # fmt: skip
    if framework == "nanotron":
        document["parallelism"]["stage_split"] = "flops_balanced" if pp > 1 else "uniform"
    if draw(st.booleans()):
        model["make_vocab_size_divisible_by"] = 128
    try:
        return scenario_from_document(document, "drawn")
    except ScenarioError:
        assume(False)
        raise


@pytest.mark.slow
@pytest.mark.parametrize("framework", sorted(EXPORTERS.names()))
@given(data=st.data())
@settings(
    max_examples=30, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow], deadline=None
)
def test_what_is_written_reads_back_as_the_same_run(framework: str, data: st.DataObject) -> None:
    scenario = data.draw(drawn(framework))
    try:
        text = export(scenario, framework)
    except ScenarioError as error:
        refused = [problem.path for problem in error.problems]
        assert all(refused)
        return
    suffix = EXPORTERS.get(framework).suffix
    given = {
        "gpu": scenario.cluster.gpu_name,
        "interconnect": scenario.cluster.interconnect_name,
        "gpus_per_node": "8",
    }
    version = EXPORTERS.get(framework).version_for(scenario)
    again = imported_scenario({f"run{suffix}": text}, given, framework=framework, version=version)
    assert differences(scenario, again) == []
    assert export(again, framework) == text


OWN_GPU = {"name": "my-gpu", "extends": "H200", "bf16_flops": "148 TFLOP/s", "nvlink_domain": 4}
OWN_NETWORK = {"name": "my-network", "rate": "200 Gb/s", "nics_per_node": 4}


@pytest.mark.parametrize(
    ("framework", "name", "changes"),
    [
        ("megatron-lm", "llama3.1-405b-16k", {}),
        ("megatron-lm", "gpt3-175b-a100", {}),
        ("megatron-lm", "deepseek-v2-lite-h100", {}),  # its first layer has no experts
        ("megatron-lm", "llama3-8b-h100", {"cluster.gpu": OWN_GPU, "cluster.interconnect": OWN_NETWORK}),
        ("nanotron", "llama3-8b-h100", {"cluster.gpu": OWN_GPU, "cluster.interconnect": OWN_NETWORK}),
        ("megatron-bridge", "llama3-70b-h100", {}),
        ("deepspeed", "nemotron4-15b-h100", {}),
        ("deepspeed", "llama2-7b-h100", {"parallelism.zero": 2}),
        ("deepspeed", "llama2-7b-h100", {"parallelism.zero": 3}),
        ("nanotron", "llama3-8b-h100", {}),
        ("torchtitan", "llama3-8b-h100", {"parallelism.zero": 3, "model": "llama3-8b"}),
    ],
)
def test_each_framework_can_say_a_run_of_its_kind(framework: str, name: str, changes: dict[str, Any]) -> None:
    assert export(load_scenario(name, changes), framework)


def test_torchtitan_is_told_by_a_word_what_its_list_of_qwen3_keeps() -> None:
    keep = ["every_second_mm", "attention", "reduce_scatter"]
    changes = {
        "model": "qwen3-30b-a3b",
        "parallelism": {"ep": 4, "tp": 1, "zero": 3, "sequence_parallel": False},
    }
    run = load_scenario("llama3-8b-h100", changes).with_(
        {"software": {"preset": "torchtitan-2025"}, "training.recompute": {"kind": "operators", "keep": keep}}
    )
    assert 'selective_ac_option = "op"' in export(run, "torchtitan")


@pytest.mark.parametrize("way", ["fused", "foreach", "for-loop"])
def test_torchtitan_is_told_how_an_update_goes_over_memory(way: str) -> None:
    software = {"kernels": {"optimizer_implementation": way}}
    changes = {"parallelism.zero": 3, "model": "llama3-8b"}
    run = load_scenario("llama3-8b-h100", changes).with_(
        {"software": {"preset": "torchtitan-2025", **software}}
    )
    assert f'implementation = "{way}"' in export(run, "torchtitan")


@pytest.mark.parametrize(
    ("framework", "name", "field"),
    [
        ("torchtitan", "gpt3-175b-a100", "model"),
        ("nanotron", "llama3-70b-h100", "parallelism.vpp"),
        ("nanotron", "gpt-22b-a100", "model.mlp"),
        ("deepspeed", "gpt-22b-a100", "training.recompute"),
        ("megatron-bridge", "deepseek-v3-2048-h800", "cluster.gpu"),
        ("megatron-bridge", "gpt3-175b-a100", "parallelism.zero"),
    ],
)
def test_what_a_framework_cannot_say_is_refused_by_field(framework: str, name: str, field: str) -> None:
    with pytest.raises(ScenarioError) as refusal:
        export(load_scenario(name), framework)
    assert field in {problem.path for problem in refusal.value.problems}


@pytest.mark.parametrize(
    ("framework", "name", "field"),
    [
        ("megatron-lm", "llama3-8b-h100", "software.preset"),
        ("megatron-bridge", "grok-1-gb200", "cluster.gpus_per_domain"),
        ("megatron-lm", "mixtral-8x7b-h100", None),
        ("torchtitan", "llama2-7b-h100", None),
    ],
)
def test_what_no_file_says_is_told(framework: str, name: str, field: str | None) -> None:
    scenario = load_scenario(name)
    notes = left_out(export(scenario, framework), scenario, framework)
    assert [str(field) in note for note in notes] == ([] if field is None else [True])


def test_what_the_environment_of_a_script_says_reads_back() -> None:
    said = {
        "software": "megatron-core-2025",
        "software.host.launch_blocking": True,
        "software.exchange.nccl_algo": "allreduce:Ring;broadcast:Ring",
        "software.exchange.nccl_proto": "^LL128",
        "cluster.message_chunk": "2 MiB",
        "training.routing": "forced",
    }
    scenario = load_scenario("mixtral-8x7b-h100", said)
    script = export(scenario, "megatron-lm")
    assert left_out(script, scenario, "megatron-lm") == []
    read = imported_scenario({"train.sh": script}, {"gpus": str(scenario.cluster.gpus)})
    assert read.cluster.message_chunk == 2 * 2**20
    assert read.training.routing == "forced"
    assert read.software.exchange.nccl_proto == "^LL128"


_UNEVEN: dict[str, Any] = {
    "parallelism.pp": 4,
    "parallelism.vpp": 1,
    "parallelism.stage_split": "uneven_unspecified",
    "model.num_layers": 30,
    "schedule": "1f1b",
    "cluster.gpus": 64,
}


@pytest.mark.parametrize(
    ("version", "said"),
    [
        (None, "--pipeline-model-parallel-layout 'Ettttttt|tttttttt|tttttttt|tttttttL'"),
        ("core_v0.9.0", "--decoder-first-pipeline-num-layers 7"),
    ],
)
def test_layers_that_do_not_divide_are_written_as_the_rule_places_them(
    version: str | None, said: str
) -> None:
    scenario = load_scenario("llama3-70b-h100", _UNEVEN | {"software": "megatron-core-2024"})
    assert said in export(scenario, "megatron-lm", version or "HEAD")


def test_shipped_layouts_of_uneven_stages_are_written() -> None:
    """Chunks of Kimi K2; of DeepSeek-V3 prediction layer and loss leave one layer to the last stage."""
    script = export(load_scenario("kimi-k2-gb300"), "megatron-lm")
    assert f"'Ettt|{'tttt|' * 13}ttt|tttL'" in script
    plain = {"schedule": "1f1b", "software": "megatron-core-2025"}
    script = export(load_scenario("deepseek-v3-2048-h800", plain), "megatron-lm")
    assert f"'Etttt|{'tttt|' * 14}tmL'" in script
    with pytest.raises(ScenarioError) as refusal:
        export(load_scenario("deepseek-v3-2048-h800"), "megatron-lm")
    assert {problem.path for problem in refusal.value.problems} == {"schedule"}  # DualPipe


def test_groups_of_microbatches_are_written_beside_uneven_stages() -> None:
    grouped = _UNEVEN | {
        "parallelism.vpp": 2,
        "schedule": "interleaved",
        "schedule_options.group": 8,
        "software": "megatron-core-2025",
    }
    script = export(load_scenario("llama3-70b-h100", grouped), "megatron-lm")
    assert "--pipeline-model-parallel-layout" in script
    read = imported_scenario({"train.sh": script}, {"gpus": "64"})
    assert read.schedule_options.group == 8


def test_a_version_that_places_no_layers_so_refuses_them() -> None:
    uneven = _UNEVEN | {"model.num_layers": 29, "software": "megatron-core-2024"}
    with pytest.raises(ScenarioError, match="29 layers"):
        export(load_scenario("llama3-70b-h100", uneven), "megatron-lm", "core_v0.9.0")


def test_an_exported_script_is_read_as_the_version_that_it_was_written_for(tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text(export(load_scenario("gpt-22b-a100"), "megatron-lm"))
    given = ("gpu=A100-SXM4-80GB", "interconnect=ib-hdr200-x8")
    preset = import_files([script], given).document["software"]["preset"]
    assert preset == "megatron-2022-sp"
    assert import_files([script], given, version="23.04").document["software"]["preset"] == "megatron-2023"


def test_export_and_plan_tell_what_the_file_does_not_say() -> None:
    written = CliRunner().invoke(app, ["export", "llama3-8b-h100", "--to", "megatron-lm"])
    assert "software.preset: nemo-2025" in written.stderr
    assert "nemo-2025" not in written.stdout
    fixed = ["--fix", "parallelism", "--fix", "training", "--fix", "schedule"]
    planned_as = ["plan", "llama3-8b-h100", *fixed, "--emit", "megatron-lm"]
    planned = CliRunner().invoke(app, planned_as)
    assert "software.preset: nemo-2025" in " ".join(planned.stdout.split())
    told = json.loads(CliRunner().invoke(app, [*planned_as, "--json"]).stdout)
    assert ["software.preset: nemo-2025" in note for note in told["not_emitted"]] == [True]


def test_a_version_that_is_none_is_told_by_itself() -> None:
    """Whatever it came from: an option of export, of plan or of import, or the first lines of a script."""
    words = ["export", "llama3-8b-h100", "--to", "megatron-lm", "--to-version", "v99"]
    told = CliRunner().invoke(app, words)
    assert told.exit_code == 2
    assert "stepsim: version v99: " in " ".join(told.output.split())


@pytest.mark.parametrize("framework", ["nanotron", "deepspeed", "megatron-bridge"])
def test_a_version_that_changes_nothing_is_refused(framework: str) -> None:
    """An option that is taken and passed over would look as if it held."""
    for words in (
        ["export", "llama3-8b-h100", "--to", framework, "--to-version", "v1"],
        ["plan", "llama3-8b-h100", "--emit", framework, "--to-version", "v1"],
    ):
        told = CliRunner().invoke(app, words)
        assert told.exit_code == 2
        assert "--to-version" in told.output
        assert "megatron-lm and torchtitan" in " ".join(told.output.split())


def test_a_version_that_changes_nothing_of_what_is_read_is_told() -> None:
    file = Path(__file__).parent / "fuzz" / "corpus" / "deepspeed.json"
    machine = ("gpu=A100-SXM4-80GB", "interconnect=ib-hdr200-x8")
    given = (*machine, "gpus=16", "model=gpt2-1.5b", "seq_length=2048")
    assert any("0.14 changes nothing" in note for note in import_files([file], given, version="0.14").notes)
    assert not any("changes nothing" in note for note in import_files([file], given).notes)


def test_an_older_version_has_fewer_options() -> None:
    """Selective recomputation came with v3.0."""
    scenario = load_scenario("gpt-22b-a100")
    assert "--recompute-granularity selective" in export(scenario, "megatron-lm", "v3.0")
    with pytest.raises(ScenarioError) as refusal:
        export(scenario, "megatron-lm", "v2.5")
    assert "training.recompute" in {problem.path for problem in refusal.value.problems}


@pytest.mark.parametrize(
    ("rule", "switch"),
    [
        ("prefetch", ""),
        ("blocking", "--no-overlap-p2p-communication"),
        ("prefetch-full", "--overlap-p2p-communication-warmup-flush"),
    ],
)
def test_messages_of_a_pipeline_are_written(rule: str, switch: str) -> None:
    scenario = load_scenario("mixtral-8x7b-h100", [f"software.pipeline.point_to_point={rule}"])
    written = export(scenario, "megatron-lm")
    assert [one in written for one in ("-p2p-", switch)] == [bool(switch), True]


@pytest.mark.parametrize(
    ("version", "switch"), [("core_v0.12.0", "--use-custom-fsdp"), ("core_v0.14.0", "--use-megatron-fsdp")]
)
def test_shards_of_parameters_are_written_by_the_name_of_the_version(version: str, switch: str) -> None:
    scenario = load_scenario("llama-7b-a100")
    assert switch in export(scenario, "megatron-lm", version)
    with pytest.raises(ScenarioError) as refusal:
        export(scenario, "megatron-lm", "core_v0.11.0")
    (problem,) = refusal.value.problems
    assert problem.path == "parallelism.zero"
    assert "core_v0.12.0" in problem.message


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("software.kernels.norm_casts_blocks", True),  # of MXFP8
        ("software.gradients.overlap_param_gather", False),  # of shards
        ("software.kernels.gelu_by_operators", True),  # of GELU
        ("software.host.update_threads", 4),  # of states on the host
    ],
)
def test_software_that_nothing_in_a_run_reads_is_no_difference(field: str, value: object) -> None:
    """A dense model in bf16, of which nothing is sharded."""
    run = scenario_from_document(
        {
            "model": "llama3-8b",
            "cluster": {"gpu": "H100-SXM5-80GB", "gpus": 8, "interconnect": "ib-ndr400-x8"},
            "parallelism": {"tp": 4, "sequence_parallel": True, "zero": 0},
            "training": {"global_batch": 8, "micro_batch": 1, "seq_length": 4096, "precision": "bf16"},
            "software": "megatron-core-2025",
        },
        "dense",
    )
    changed = run.with_({field: value})
    assert changed != run
    assert not differences(run, changed)


def test_whether_a_gate_is_fused_matters_to_models_that_have_one() -> None:
    gelu, swiglu = load_scenario("gpt-22b-a100"), load_scenario("llama3-8b-h100")
    assert not differences(gelu, gelu.with_({"software.kernels.fused_gate": False}))
    assert differences(swiglu, swiglu.with_({"software.kernels.fused_gate": False}))


@pytest.mark.parametrize("loss", ["vocab-parallel", "compiled", "fused"])
def test_all_losses_of_megatron_core_are_written(loss: str) -> None:
    """TransformerEngine's reads and writes 16-bit logits; it has a switch of its own."""
    fields = {"software.kernels.cross_entropy": loss, "software.kernels.logits_fp32": loss != "fused"}
    run = load_scenario("llama3-8b-h100").with_({"software": "megatron-core-2025"}).with_(fields)
    text = export(run, "megatron-lm")
    assert ("--cross-entropy-loss-fusion" in text) == (loss != "vocab-parallel")
    assert ("--cross-entropy-fusion-impl te" in text) == (loss == "fused")
    with pytest.raises(ScenarioError):
        export(run.with_({"software.kernels.cross_entropy": "gathered"}), "megatron-lm")
