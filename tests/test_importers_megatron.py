"""What Megatron-LM's options mean, trap by trap: each is one that a plain reading gets wrong."""

from __future__ import annotations

from typing import Any

import pytest
from importing import imported, refused, scenario
from megatron_scripts import BASE, MOE, args

from stepsim.sim.scenario.errors import ScenarioError


def field(more: str, path: str, given: dict[str, str] | None = None, version: str | None = "HEAD") -> Any:
    found: Any = imported(args(more), {"gpus": "64"} | (given or {}), version=version).document
    for key in path.split("."):
        found = found.get(key) if isinstance(found, dict) else None
    return found


@pytest.mark.parametrize(
    ("more", "path", "value"),
    [
        # Modules of Megatron's own cost the host no more than torch's.
        ("--transformer-impl local", "software.host.launches_per_attention", 1),
        ("--transformer-impl local", "software.host.launches_per_product", 1),
        ("--transformer-impl transformer_engine", "software.host.launches_per_attention", None),
        # Query groups count only together with the switch.
        ("--num-query-groups 8", "model.num_query_groups", 32),
        ("--num-query-groups 8 --group-query-attention", "model.num_query_groups", 8),
        # Embeddings are tied, and biases on, unless told otherwise.
        ("", "model.tied_embeddings", True),
        ("--untie-embeddings-and-output-weights", "model.tied_embeddings", False),
        ("", "model.biases", True),
        ("--disable-bias-linear", "model.biases", False),
        # 4h, or 8h/3 in whole 64.
        ("", "model.ffn_hidden_size", 16384),
        ("--swiglu", "model.ffn_hidden_size", 10880),
        # The vocabulary is padded to 128 times tp; a padded one wins.
        ("", "model.make_vocab_size_divisible_by", 128),
        ("--padded-vocab-size 151936", "model.padded_vocab_size", 151936),
        ("--tokenizer-type NullTokenizer --vocab-size 1023", "model.vocab_size", 1024),
        # The first name counts layers of a chunk, the second chunks.
        ("--pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 2", "parallelism.vpp", 4),
        ("--pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 2", "parallelism.vpp", 2),
        ("--pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 8", "schedule", "1f1b"),
        # Dropped where tp is 1.
        ("--sequence-parallel", "parallelism.sequence_parallel", None),
        # One microbatch on each replica where no batch is told.
        ("--use-distributed-optimizer", "parallelism.zero", 1),
        ("", "parallelism.zero", 0),
        # FSDP shards nothing until the strategy is given.
        ("--use-megatron-fsdp", "parallelism.zero", 0),
        ("--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params", "parallelism.zero", 3),
        ("--use-torch-fsdp2", "parallelism.zero", 3),
        ("--use-distributed-optimizer --num-distributed-optimizer-instances 4",
        "parallelism.fsdp_shard_size", 16),
        # bf16 accumulates and reduces in 32 bit, fp16 in 16.
        ("", "software.gradients.main_grad_bytes", 4),
        ("--grad-reduce-in-bf16", "software.gradients.main_grad_bytes", 2),
        # Every overlap is off unless an option says it.
        ("", "software.gradients.overlap_grad_reduce", False),
        ("", "software.exchange.tp_comm_overlap", False),
        ("--overlap-grad-reduce", "software.gradients.overlap_grad_reduce", True),
        ("", "software.kernels.cross_entropy", "vocab-parallel"),
        ("--cross-entropy-loss-fusion", "software.kernels.cross_entropy", "compiled"),
        ("--cross-entropy-loss-fusion --cross-entropy-fusion-impl te",
        "software.kernels.cross_entropy", "fused"),
        ("--cross-entropy-loss-fusion --cross-entropy-fusion-impl te", "software.kernels.logits_fp32", False),
        ("--fused-single-qkv-rope", "software.kernels.fused_qkv_rope", True),
        # Recomputation.
        ("--recompute-activations", "training.recompute", "selective"),
        ("--recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
        "training.recompute", "full"),
        ("--recompute-granularity full --recompute-method block --recompute-num-layers 3",
        "training.recompute",
         {"kind": "full", "method": "block", "layers": 3}),
        ("--recompute-granularity selective --recompute-modules mlp layernorm", "training.recompute",
         {"kind": "modules", "modules": ["mlp", "layernorm"]}),
        # FP8 is delayed unless a recipe says otherwise.
        ("--fp8-format hybrid", "software.kernels.fp8_scaling", "delayed"),
        ("--fp8-format hybrid", "software.exchange.amax_group", "replicas"),
        ("--fp8-format hybrid --tp-only-amax-red", "software.exchange.amax_group", "tensor"),
        ("--fp8-format e4m3 --fp8-recipe mxfp8", "training.precision", "mxfp8"),
        ("--fp8-format hybrid --fp8-recipe tensorwise", "software.kernels.fp8_scaling", "current"),
        # Moments in 16 bit by the optimizer that knows types.
        ("--use-precision-aware-optimizer --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16",
        "software.gradients.moment_bytes", 2),
        ("--exp-avg-dtype bf16 --exp-avg-sq-dtype bf16", "software.gradients.moment_bytes", None),
        # Latent attention has its own sizes.
        ("--multi-latent-attention --kv-lora-rank 512", "model.mla.qk_nope_head_dim", 128),
        # Norms of heads, which with latents are theirs.
        ("--qk-layernorm", "model.qk_norm", True),
        ("--qk-layernorm --multi-latent-attention --kv-lora-rank 512", "model.qk_norm", None),
        # A window of so many to the left is one key more.
        ("--window-size 127,0 --window-attn-skip-freq 2", "model.sliding_window", 128),
        ("--attention-head-type multiquery", "model.num_query_groups", 1),
        ("--ddp-bucket-size 1000000", "software.gradients.bucket_elements", 1e6),
        ("--cpu-offloading-num-layers 31", "training.activation_offload", True),
    ],
)  # fmt: skip
def test_an_option_sets_its_field(more: str, path: str, value: object) -> None:
    assert field(more, path) == value


@pytest.mark.parametrize(
    ("more", "path", "value"),
    [
        (MOE + " --moe-layer-freq '([0]*3+[1]*29)'", "model.moe.layer_freq", [0] * 3 + [1] * 29),
        (MOE + " --moe-layer-freq 2", "model.moe.layer_freq", 2),
        (MOE, "model.moe.expert_ffn_hidden_size", 16384),
        (MOE, "model.moe.topk", 2),
        # Experts are split as everything else is, unless told.
        (MOE + " --tensor-model-parallel-size 2 --sequence-parallel", "parallelism.etp", 2),
        (
            MOE + " --tensor-model-parallel-size 2 --sequence-parallel --expert-tensor-parallel-size 1",
            "parallelism.etp",
            1,
        ),
        (MOE, "software.exchange.moe_dispatcher", "alltoall"),
        (
            MOE + " --moe-token-dispatcher-type flex --moe-flex-dispatcher-backend hybridep",
            "software.exchange.moe_dispatcher",
            "hybridep",
        ),
        (MOE + " --moe-enable-deepep", "software.exchange.moe_dispatcher", "deepep"),
        (
            MOE + " --moe-enable-deepep --moe-permute-fusion",
            "software.exchange.arrivals_indexed_by_torch",
            True,
        ),
        (
            MOE + " --moe-enable-deepep --moe-permute-fusion --enable-experimental",
            "software.exchange.arrivals_indexed_by_torch",
            False,
        ),
        (MOE + " --moe-router-num-groups 8 --moe-router-group-topk 4", "model.moe.node_limit", 4),
        (MOE + " --moe-router-force-load-balancing", "training.routing", "forced"),
        (MOE, "software.exchange.router_loss", False),
        (MOE + " --moe-aux-loss-coeff 0.01", "software.exchange.router_loss", True),
        (
            MOE + " --moe-aux-loss-coeff 1e-2 --moe-router-load-balancing-type none",
            "software.exchange.router_loss",
            False,
        ),
        (
            MOE + " --moe-aux-loss-coeff 0 1e-4 --moe-router-load-balancing-type aux_loss seq_aux_loss",
            "software.exchange.router_loss",
            True,
        ),
        (MOE + " --moe-z-loss-coeff 1e-3", "software.exchange.router_loss", False),
        (MOE, "software.exchange.moe_a2a_overlap", False),
        (MOE, "software.exchange.moe_shared_expert_overlap", False),
    ],
)
def test_an_option_of_experts_means(more: str, path: str, value: object) -> None:
    base = BASE.replace(" --moe-token-dispatcher-type alltoall", "")
    listed = more.split(" --")
    kept = {one.split()[0]: one for one in listed if one}
    text = " ".join(f"--{one}" for one in kept.values())
    found: Any = imported(args(text, base), {"gpus": "64"}, version="HEAD").document
    for key in path.split("."):
        found = found[key]
    assert found == value


@pytest.mark.parametrize(
    ("more", "name"),
    [
        ("--hybrid-layer-pattern M-M*", "--hybrid-layer-pattern"),
        ("--spec megatron.core.models.mamba.mamba_layer_specs", "--spec"),
        ("--encoder-seq-length 512 --decoder-seq-length 128", "--decoder-seq-length"),
        ("--retro-add-retriever", "--retro-add-retriever"),
        ("--fp16", "--fp16"),
        ("--recompute-granularity full --recompute-activations", "--recompute-activations"),
        ("--recompute-granularity selective --recompute-method uniform", "--recompute-method"),
        ("--recompute-granularity selective --recompute-modules conv", "--recompute-modules"),
        ("--enable-zero-bubble", "--enable-zero-bubble"),
        ("--zero-bubble-v-schedule", "--zero-bubble-v-schedule"),
        ("--patch-primus-pipeline", "--patch-primus-pipeline"),
        ("--checkpoint-activations", "--checkpoint-activations"),
        ("--batch-size 8", "--batch-size"),
        ("--model-parallel-size 8", "--model-parallel-size"),
        ("--num-experts 8 --moe-token-dispatcher-type alltoall", "--moe-grouped-gemm"),
        ("--num-experts 8 --moe-grouped-gemm --expert-model-parallel-size 8", "moe_token_dispatcher_type"),
        ("--overlap-param-gather", "--overlap-param-gather"),
        ("--tp-comm-overlap", "--tp-comm-overlap"),
        ("--delay-wgrad-compute --num-experts 8 --moe-grouped-gemm", "--delay-wgrad-compute"),
        ("--optimizer-cpu-offload --optimizer-offload-fraction 0.5", "--optimizer-offload-fraction"),
        ("--cpu-offloading-num-layers 2", "--cpu-offloading-num-layers"),
        ("--use-precision-aware-optimizer --exp-avg-dtype fp8 --exp-avg-sq-dtype fp8", "--exp-avg-dtype"),
        ("--fp8-format hybrid --fp8-recipe custom", "--fp8-recipe"),
        ("--some-new-parallel-size 4", "--some-new-parallel-size"),
        ("--overlap-everything", "--overlap-everything"),
        ("--moe-extended-tp", "--moe-extended-tp"),
        ("--moe-layer-freq '[1]*4' --num-experts 8 --moe-grouped-gemm", "--moe-layer-freq"),
        ("--pipeline-model-parallel-size 3", "num_layers"),
        ("--tensor-model-parallel-size two", "--tensor-model-parallel-size"),
        ("--pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 3",
        "--num-layers-per-virtual-pipeline-stage"),
        ("--num-layers 16", "--num-layers"),
    ],
)  # fmt: skip
def test_what_cannot_be_expressed_is_refused_by_name(more: str, name: str) -> None:
    assert name in refused(args(more), {"gpus": "64"}, version="HEAD")


def test_what_is_missing_is_asked_for_all_at_once() -> None:
    files = {"train.args": "--tensor-model-parallel-size 2 --num-layers 32 --hidden-size 4096 --bf16"}
    asked = refused(files) | refused(files, {"gpu": "A100"})
    assert {"num_attention_heads", "micro_batch_size", "seq_length", "vocab_size", "gpus"} <= asked


def test_a_batch_that_grows_is_asked_for() -> None:
    more = "--rampup-batch-size 16 16 1000"
    assert refused(args(more), {"gpus": "64"}) == {"global_batch_size"}
    assert scenario(args(more), {"gpus": "64", "global_batch_size": "128"}).training.global_batch == 128


def test_one_microbatch_a_replica_where_no_batch_is_told() -> None:
    base = BASE.replace(" --global-batch-size 64", "")
    assert scenario(args("--tensor-model-parallel-size 2", base), {"gpus": "64"}).training.global_batch == 32


def test_a_pipeline_layout_is_counted() -> None:
    more = (
        "--pipeline-model-parallel-size 4 --pipeline-model-parallel-layout 'Et*3|(tttt|)*6tttttL' "
        "--mtp-num-layers 1"
    )
    assert refused(args(more), {"gpus": "64"}) == set()
    made = scenario(args(more), {"gpus": "64"})
    assert made.parallelism.vpp == 2
    assert made.parallelism.stage_split == (3, 4, 4, 4, 4, 4, 4, 5)
    far = (
        "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 'Et*16m|t*16L' --mtp-num-layers 1"
    )
    assert "--pipeline-model-parallel-layout" in refused(args(far), {"gpus": "64"})


@pytest.mark.parametrize(
    ("version", "more", "preset", "recompute"),
    [
        ("v2.5", "--checkpoint-activations", "megatron-2021", "full"),
        ("v3.0", "--activations-checkpoint-method uniform", "megatron-2022-sp", "full"),
        ("23.04", "--recompute-activations", "megatron-2023", "selective"),
        ("core_v0.7.0", "--recompute-activations", "megatron-core-2024", "selective"),
        ("core_v0.12.1", "--recompute-activations", "megatron-core-2025", "selective"),
        (None, "--checkpoint-activations", "megatron-2021", "full"),
        (None, "--use-mcore-models", "megatron-core-2025", "none"),
    ],
)
def test_each_era_has_its_own_words(version: str | None, more: str, preset: str, recompute: str) -> None:
    document = imported(args(more), {"gpus": "64"}, version=version).document
    assert document["software"]["preset"] == preset
    assert document["training"]["recompute"] == recompute


def test_kernels_before_transformer_engine_are_unfused_unless_flash_is_asked_for() -> None:
    assert field("", "software.kernels.attention", version="23.04") == "unfused"
    assert field("--use-flash-attn", "software.kernels.attention", version="23.04") == "fa2"
    assert field("--use-flash-attn", "software.kernels.attention", version="HEAD") is None


def test_v2_cuts_parallel_sizes_at_the_world() -> None:
    document = imported(args("--tensor-model-parallel-size 16"), {"gpus": "8"}, version="v2.0").document
    assert document["parallelism"]["tp"] == 8


def test_yaml_of_arguments_and_its_environment_are_read() -> None:
    text = "ENV_VARS:\n  NCCL_ALGO: Ring\n  NCCL_P2P_NET_CHUNKSIZE: 2097152\nMODEL_ARGS:\n" + "".join(
        f"  {one}\n" for one in ("--num-layers: 4", "--hidden-size: 512", "--num-attention-heads: 8",
        "--seq-length: ${SEQ}", "--micro-batch-size: 2",
                                  "--global-batch-size: 16", "--bf16: true", "--vocab-size: 1000",
                                  "--lr: 1e-4")
    )  # fmt: skip
    files = {"model_config.yaml": text}
    assert refused(files, {"gpus": "8"}) == {"SEQ"}
    made = imported(files, {"gpus": "8", "SEQ": "1024"})
    assert made.document["training"]["seq_length"] == 1024
    assert made.document["software"]["exchange"]["nccl_algo"] == "Ring"
    assert made.document["cluster"]["message_chunk"] == "2097152 B"
    assert made.ignored == ("--lr",)
    assert made.origins["model.num_layers"] == "model_config.yaml:5 --num-layers 4"


@pytest.mark.parametrize("chunk", ["lots", "0", "1.5"])
def test_a_wrong_variable_of_the_environment_is_refused_at_its_line(chunk: str) -> None:
    script = f"export NCCL_P2P_NET_CHUNKSIZE={chunk}\ntorchrun " + BASE
    with pytest.raises(ScenarioError) as refusal:
        imported({"train.sh": script}, {"gpus": "8"})
    (problem,) = refusal.value.problems
    assert (problem.path, problem.mark.line) == ("NCCL_P2P_NET_CHUNKSIZE", 1)


@pytest.mark.parametrize(("name", "value"), [("NCCL_ALGO", "Rong"), ("NCCL_PROTO", "Simpel")])
def test_a_word_that_nccl_does_not_know_is_refused_at_the_line_of_the_script(name: str, value: str) -> None:
    script = f"#!/bin/bash\nexport {name}={value}\ntorchrun " + BASE
    with pytest.raises(ScenarioError) as refusal:
        imported({"train.sh": script}, {"gpus": "8"})
    (problem,) = refusal.value.problems
    assert (problem.path, problem.mark.line, problem.value) == (name, 2, value)


def test_a_script_with_its_launcher_gives_the_world() -> None:
    script = (
        f"#!/bin/bash\n#SBATCH --nodes=4\n#SBATCH --gres=gpu:8\nsrun torchrun --nproc_per_node 8 "
        f"--nnodes $SLURM_NNODES pretrain_gpt.py {BASE}\n"
    )
    assert scenario({"train.sh": script}).cluster.gpus == 32
    several = "torchrun --nproc_per_node 8 --nnodes ${NNODES} pretrain_gpt.py " + BASE
    assert refused({"train.sh": several}) == {"NNODES"}
    assert scenario({"train.sh": several}, {"NNODES": "2"}).cluster.gpus == 16


INTERLEAVED = "--pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 2"


def test_messages_of_warmup_and_flush_are_those_of_their_switch() -> None:
    path = "software.pipeline.point_to_point"
    assert field(INTERLEAVED, path) is None
    assert field(f"{INTERLEAVED} --overlap-p2p-communication-warmup-flush", path) == "prefetch-full"
    assert field(f"{INTERLEAVED} --no-overlap-p2p-communication", path) == "blocking"
    made = scenario(args(f"{INTERLEAVED} --overlap-p2p-communication-warmup-flush"), {"gpus": "64"})
    assert made.software.pipeline.point_to_point == "prefetch-full"
    both = args(f"{INTERLEAVED} --overlap-p2p-communication-warmup-flush --no-overlap-p2p-communication")
    assert refused(both, {"gpus": "64"}) == {"--overlap-p2p-communication-warmup-flush"}


def test_layers_that_are_asked_for_are_not_said_to_be_uneven() -> None:
    plain = {"train.args": BASE.replace("--num-layers 32", "") + " --pipeline-model-parallel-size 4"}
    with pytest.raises(ScenarioError) as refusal:
        imported(plain, {"gpus": "64"})
    assert [problem.path for problem in refusal.value.problems] == ["num_layers"]
    assert "nothing says" in refusal.value.problems[0].message


def test_a_head_whose_gradients_are_put_off_is_noted() -> None:
    made = imported(args(f"{INTERLEAVED} --defer-embedding-wgrad-compute"), {"gpus": "64"})
    assert any(note.startswith("--defer-embedding-wgrad-compute") for note in made.notes)


def test_a_list_with_options_of_several_branches_is_refused() -> None:
    twice = args("--tensor-model-parallel-size 2 --tensor-model-parallel-size 4")
    assert "--tensor-model-parallel-size" in refused(twice, {"gpus": "64"})


def test_a_name_that_nobody_asks_for_is_refused() -> None:
    assert refused(args(), {"gpus": "64", "colour": "red"}) == {"--given colour"}
