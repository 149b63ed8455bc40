"""Broken scenarios: every message says where, what, and what would be right."""

from __future__ import annotations

from pathlib import Path

import pytest
from broken_scenarios import GOOD, problems, the_problem

from stepsim.sim.scenario.errors import ScenarioError
from stepsim.sim.scenario.load import load_scenario, scenario_from_document


def test_the_good_one_is_good(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(GOOD, encoding="utf-8")
    assert load_scenario(path).parallelism.dp == 8


# One line of GOOD replaced: the line, its replacement, and what the message must hold.
BROKEN = {
    "wrong unit": (
        "interconnect: ib-ndr400-x8}",
        "interconnect: ib-ndr400-x8, measured_network: {all_reduce: 224 GHz}}",
        "2:101",
        ["cluster.measured_network.all_reduce_bytes_per_s", "224 GHz", "GHz measures a frequency", "50 GB/s"],
    ),
    "no unit": (
        "interconnect: ib-ndr400-x8}",
        "interconnect: ib-ndr400-x8, measured_network: {all_reduce: 224}}",
        "2:101",
        ["224 has no unit", "400 Gb/s"],
    ),
    "unknown key": ("  tp: 4", "  tpp: 4", "4:3", ["parallelism.tpp", "'tpp'", "Did you mean tp?", "zero"]),
    "unknown block": ("schedule:", "scedule:", "12:1", ["'scedule'", "Did you mean schedule?"]),
    "key of another block": (
        "  tp: 4",
        "  tp: 4\n  micro_batch_size: 1",
        "5:3",
        ["parallelism.micro_batch_size", "belongs elsewhere: training.micro_batch"],
    ),
    "tp does not divide heads": (
        "  tp: 4",
        "  tp: 3",
        "4:7",
        ["parallelism.tp", "3 does not divide num_attention_heads 32", "num_query_groups 8", "1, 2, 4 or 8"],
    ),
    "more tp than query groups": ("  tp: 4", "  tp: 16", "4:7", ["num_query_groups 8", "1, 2, 4 or 8"]),
    "no such GPU": (
        "gpu: H100-SXM5-80GB",
        "gpu: H10-SXM5-80GB",
        "2:16",
        ["cluster.gpu", "'H10-SXM5-80GB'", "Did you mean H100-SXM5-80GB?", "A100-SXM4-80GB"],
    ),
    "no such interconnect": ("ib-ndr400-x8", "infiniband", "2:56", ["cluster.interconnect", "roce-400-x8"]),
    "no such model": ("llama3-8b", "llama3-80b", "1:8", ["model", "Did you mean llama3-8b?", "gpt3-175b"]),
    "no such software": (
        "megatron-core-2024",
        "megatronn",
        "13:11",
        ["software", "'megatronn'", "nanotron-2024"],
    ),
    "duplicate key": ("  tp: 4", "  tp: 4\n  tp: 8", "5:3", ["parallelism.tp", "given twice", "line 4"]),
    "duplicate under an alias": (
        "  tp: 4",
        "  tp: 4\n  tensor_model_parallel_size: 8",
        "5:3",
        ["tp is given twice", "line 4"],
    ),
    "negative size": (
        "  seq_length: 8192",
        "  seq_length: -8192",
        "10:15",
        ["training.seq_length", "-8192 is too small", "1 or more"],
    ),
    "not a whole number": (
        "  pp: 2",
        "  pp: two",
        "5:7",
        ["parallelism.pp", "a whole number is needed, not 'two'"],
    ),
    "yes is text": (
        "  tp: 4",
        "  tp: 4\n  sequence_parallel: yes",
        "5:22",
        ["parallelism.sequence_parallel", "true or false is needed, not 'yes'"],
    ),
    "missing field": (
        "  seq_length: 8192\n",
        "",
        "7:1",
        ["training.seq_length", "required", "tokens per sequence", "8192"],
    ),
    "missing block": (
        "software: megatron-core-2024\n",
        "",
        "",
        ["software", "required", "megatron-core-2024"],
    ),
    "missing network": (
        ", interconnect: ib-ndr400-x8",
        "",
        "2:1",
        ["cluster.interconnect", "required", "ib-ndr400-x8"],
    ),
    "batch not divisible": (
        "global_batch: 64",
        "global_batch: 60",
        "8:17",
        ["training.global_batch", "60 is not a multiple of micro_batch × dp = 1 × 8 = 8", "48 or 64"],
    ),
    "microbatches not in groups": (
        "global_batch: 64",
        "global_batch: 72",
        "8:17",
        ["9 microbatches", "groups of pp = 2", "64 or 80"],
    ),
    "unknown schedule": (
        "schedule: interleaved",
        "schedule: interleved",
        "12:11",
        ["schedule", "'interleved'", "Did you mean interleaved?", "1f1b"],
    ),
    "schedule without chunks": (
        "  vpp: 2\n",
        "",
        "3:1",
        ["parallelism.vpp", "interleaved", "2 or more chunks"],
    ),
    "chunks without schedule": (
        "schedule: interleaved",
        "schedule: 1f1b",
        "6:8",
        ["parallelism.vpp", "one chunk"],
    ),
    "layers over stages": (
        "  vpp: 2",
        "  vpp: 3",
        "3:1",
        ["32 layers cannot be split evenly over pp × vpp = 2 × 3 = 6", "1, 2, 4, 8, 16 or 32"],
    ),
    "list of layers": (
        "  vpp: 2",
        "  vpp: 2\n  stage_split: [8, 8, 8, 9]",
        "7:16",
        ["parallelism.stage_split", "adds up to 33 layers", "32"],
    ),
    "world size": (
        "  pp: 2",
        "  pp: 2\n  cp: 3",
        "2:38",
        ["cluster.gpus", "64 is not a multiple of tp × pp × cp = 4 × 2 × 3 = 24", "48 or 72"],
    ),
    "given dp": ("  tp: 4", "  tp: 4\n  dp: 4", "5:7", ["parallelism.dp", "32", "gpus is 64", "set it to 8"]),
    "experts of a dense model": (
        "  tp: 4",
        "  tp: 4\n  ep: 2",
        "5:7",
        ["parallelism.ep", "the model is dense"],
    ),
    "sharded over one": (
        "  tp: 4",
        "  tp: 1\n  sequence_parallel: true",
        "5:22",
        ["parallelism.sequence_parallel", "sequence_parallel: false", "tp to 2"],
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_one_mistake_gives_one_message(tmp_path: Path, case: str) -> None:
    line, replacement, position, words = BROKEN[case]
    assert GOOD.count(line) == 1
    message = str(the_problem(tmp_path, GOOD.replace(line, replacement)))
    file = tmp_path / "run.yaml"
    assert message.startswith(f"{file}:{position}: " if position else f"{file}: ")
    for word in words:
        assert word in message


def test_a_dense_model_has_no_router_to_make_even(tmp_path: Path) -> None:
    problem = the_problem(tmp_path, GOOD, "training.routing=forced")
    assert "the model is dense: there is no router" in str(problem)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("software.sharding.experts_whole", "true"),
        ("software.exchange.arrivals_indexed_by_torch", "true"),
        ("software.kernels.expert_operators", "torch"),
    ],
)
def test_a_dense_model_has_no_experts_to_run_or_keep(tmp_path: Path, field: str, value: str) -> None:
    preset = "software.preset=generic-fsdp"
    problem = the_problem(tmp_path, GOOD, preset, f"{field}={value}")
    assert f"{field}: {value} is of experts, and the model is dense" in str(problem)
    silent = {"true": "false", "torch": "library"}[value]
    (tmp_path / "run.yaml").write_text(GOOD, encoding="utf-8")
    load_scenario(tmp_path / "run.yaml", [preset, f"{field}={silent}"])


@pytest.mark.parametrize(
    ("field", "value"),
    [("unrolled", "true"), ("profile_guided", "true"), ("combine_reduce_bytes", "1048576")],
)
def test_what_is_of_xla_is_for_stacks_of_xla(tmp_path: Path, field: str, value: str) -> None:
    """Nothing else reads it. What says what holds anyway is no mistake."""
    said, preset = f"software.sharding.{field}={value}", "software.preset=generic-fsdp"
    problem = the_problem(tmp_path, GOOD, preset, said)
    assert f"software.sharding.{field}: {value.lower()} is of XLA" in str(problem)
    assert "implementation is fsdp2" in str(problem)
    load_scenario(tmp_path / "run.yaml", ["software.preset=generic-jax", said])
    load_scenario(tmp_path / "run.yaml", [preset, "software.sharding.unrolled=false"])


def test_what_divides_by_several_sizes(tmp_path: Path) -> None:
    sequence = the_problem(tmp_path, GOOD, "parallelism.sequence_parallel=true", "training.seq_length=8190")
    assert "8190 is not a multiple of cp × tp = 4; seq_length can be 8188 or 8192" in str(sequence)
    slices = the_problem(tmp_path, GOOD, "parallelism.cp=2", "training.seq_length=8190")
    assert "8190 is not a multiple of 2 × cp = 4" in str(slices)
    layout = ("parallelism.tp=2", "parallelism.pp=2", "cluster.gpus=12", "training.global_batch=60")
    assert "12 GPUs do not fill hosts of 8; gpus can be 8 or 16" in str(the_problem(tmp_path, GOOD, *layout))


def test_numbers_of_gpus_that_are_proposed_fill_hosts(tmp_path: Path) -> None:
    odd = the_problem(
        tmp_path, GOOD, "parallelism.pp=1", "parallelism.vpp=1", "schedule=null", "cluster.gpus=61"
    )
    assert "61 is not a multiple of tp × pp × cp = 4 × 1 × 1 = 4; gpus can be 56 or 64" in str(odd)
    shards = the_problem(tmp_path, GOOD, "parallelism.zero=3", "parallelism.fsdp_shard_size=3")
    assert "3 must divide dp × cp = 8; it can be 1, 2, 4 or 8" in str(shards)


def test_a_message_shows_the_line_with_a_caret(tmp_path: Path) -> None:
    problem = the_problem(tmp_path, GOOD.replace("  tp: 4", "  tp: 3"))
    head, line, caret = str(problem).splitlines()
    assert head.startswith(f"{tmp_path / 'run.yaml'}:4:7: parallelism.tp: 3 does not divide")
    assert line == "      tp: 3"
    assert line[caret.index("^")] == "3"
    assert (problem.path, problem.value, problem.mark.line, problem.mark.column) == (
        "parallelism.tp",
        3,
        4,
        7,
    )


def test_every_mistake_is_reported_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    broken = (
        GOOD.replace("llama3-8b", "llama3-9b")
        .replace("gpu: H100-SXM5-80GB", "gpu: A100")
        .replace("  vpp: 2", "  vpp: 2\n  zero: 4\n  color: red")
        .replace("  precision: bf16", "  precision: fp17")
        .replace("schedule: interleaved", "schedule: interleved\nsofware: x")
    )
    found = problems(tmp_path, broken)
    assert [problem.path for problem in found] == [
        "model", "cluster.gpu", "parallelism.zero", "parallelism.color", "training.precision", "schedule",
        "sofware",
    ]  # fmt: skip
    with pytest.raises(ScenarioError, match="7 problems"):
        load_scenario(tmp_path / "run.yaml")


def test_an_unknown_key_does_not_hide_what_else_is_wrong(tmp_path: Path) -> None:
    broken = GOOD.replace("  tp: 4", "  tp: 3\n  color: red").replace(
        "precision: bf16", "precision: bf16\n  x: 1"
    )
    found = {problem.path for problem in problems(tmp_path, broken)}
    assert found >= {"parallelism.tp", "parallelism.color", "training.x"}


def test_wrong_sizes_are_reported_once_and_not_through_their_consequences(tmp_path: Path) -> None:
    problem = the_problem(tmp_path, GOOD, "parallelism.pp=3", "parallelism.stage_split=uneven_unspecified")
    assert problem.path == "cluster.gpus"


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("parallelism.tp=3", ["--set: parallelism.tp: 3 does not divide", "    parallelism.tp=3\n"]),
        ("parallelism.tpp=2", ["--set: parallelism.tpp", "Did you mean tp?"]),
        ("parallelism.tp", ["--set: write a change as field=value", "parallelism.tp=4"]),
        ("=4", ["write a change as field=value"]),
        ("parallelism..tp=4", ["write a change as field=value"]),
        ("parallelism=4", ["--set: parallelism: a block of fields is needed, not 4"]),
        ("training.global_batch=[1", ["--set: this is not valid YAML", "training.global_batch=[1"]),
        ("cluster.gpus=60", ["--set: cluster.gpus: 60 is not a multiple of", "56 or 64"]),
    ],
)
def test_mistakes_on_the_command_line_name_its_text(tmp_path: Path, override: str, words: list[str]) -> None:
    message = str(the_problem(tmp_path, GOOD, override))
    for word in words:
        assert word in message
    assert ".yaml" not in message


def test_a_document_without_a_file_is_named() -> None:
    with pytest.raises(ScenarioError) as refusal:
        scenario_from_document({"model": "llama3-8b", "cluster": {"gpu": "H100-SXM5-80GB"}}, "case 7")
    messages = [str(problem) for problem in refusal.value.problems]
    assert all(message.startswith("case 7: ") for message in messages)
    assert {problem.path for problem in refusal.value.problems} == {
        "cluster.gpus", "cluster.interconnect", "training", "software",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("recompute", "words"),
    [
        ("sometimes", "no recompute is called 'sometimes'"),
        ("{kind: full}", "recompute: full"),
        ("{kind: full, layers: 99}", "99 is more than the 16 layers of a stage"),
        ("{kind: modules}", "[layernorm, mlp]"),
        ("{kind: modules, modules: [mpl]}", "Did you mean mlp?"),
        ("7", "a block of fields is needed"),
    ],
)
def test_recomputation_that_says_nothing(tmp_path: Path, recompute: str, words: str) -> None:
    problem = the_problem(tmp_path, GOOD, f"training.recompute={recompute}")
    assert words in str(problem)
    assert problem.path.startswith("training.recompute")


def test_a_wrong_bandwidth_does_not_hide_a_wrong_gpu(tmp_path: Path) -> None:
    overrides = ("cluster.measured_network.all_reduce=224", "cluster.gpu=A100", "cluster.fabric=ring")
    paths = {problem.path for problem in problems(tmp_path, GOOD, *overrides)}
    assert paths == {"cluster.measured_network.all_reduce_bytes_per_s", "cluster.gpu", "cluster.fabric.kind"}


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("training.global_batch=1e300", "a whole number up to 1e12"),
        ("training.global_batch=8e7", "at most 1000000 are replayed"),
        ("cluster.gpus=60000000000", "10000000 or less"),
        ("model.num_layers=1e18", "a whole number up to 1e12"),
    ],
)
def test_absurd_sizes_are_refused_at_once(tmp_path: Path, setting: str, words: str) -> None:
    path = setting.partition("=")[0]
    found = [p for p in problems(tmp_path, GOOD, setting) if p.path == path]
    assert any(words in str(problem) for problem in found)


@pytest.mark.parametrize("wrong", ["cluster.gpus=64.5", "cluster.gpu=GB20"])
def test_a_wrong_number_or_name_of_gpus_asks_for_no_network(tmp_path: Path, wrong: str) -> None:
    """Whether the job needs a network between hosts follows from both."""
    text = GOOD.replace("H100-SXM5-80GB, gpus: 64, interconnect: ib-ndr400-x8", "GB200-NVL72, gpus: 64")
    assert the_problem(tmp_path, text, wrong).path == wrong.partition("=")[0]


def test_a_precision_that_names_its_scaling_is_sent_to_the_field_of_it(tmp_path: Path) -> None:
    text = GOOD.replace("precision: bf16", "precision: fp8-blockwise")
    assert "software.kernels.fp8_scaling" in the_problem(tmp_path, text).message


def test_a_model_of_hugging_face_is_no_scenario_and_says_so_once(tmp_path: Path) -> None:
    text = '{"model_type": "qwen3", "hidden_size": 4096, "num_hidden_layers": 36, "head_dim": 128}'
    assert "Hugging Face" in the_problem(tmp_path, text).message
