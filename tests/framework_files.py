"""A small file of each framework, as its users write them, for tests of importers."""

from __future__ import annotations

TITAN = """
[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 4
seq_len = 8192
[parallelism]
data_parallel_shard_degree = -1
"""

NANO = """
model: {dtype: bfloat16, model_config: {is_llama_config: true, hidden_size: 2048, intermediate_size: 8192,
num_attention_heads: 32,
  num_key_value_heads: 8, num_hidden_layers: 24, vocab_size: 49151, hidden_act: silu, tie_word_embeddings:
  true}}
parallelism: {dp: 4, tp: 2, pp: 2}
optimizer: {zero_stage: 0, accumulate_grad_in_fp32: true}
tokens: {micro_batch_size: 2, batch_accumulation_per_replica: 8, sequence_length: 4096}
"""

DEEPSPEED = (
    '{"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4, "bf16": {"enabled": '
    'true}, "zero_optimization": {"stage": 3}}'
)

MEGATRON_DEEPSPEED = """#!/bin/bash
cat <<EOT > ds_config.json
{"train_micro_batch_size_per_gpu": 2, "train_batch_size": 64, "bf16": {"enabled": true},
"zero_optimization": {"stage": ZERO}}
EOT
deepspeed --num_nodes 2 --num_gpus 8 pretrain_gpt.py --num-layers 30 --hidden-size 2048 \\
  --num-attention-heads 16 --seq-length 2048 \\
  --micro-batch-size 2 --global-batch-size 64 --bf16 --pad-vocab-size-to 250880 \\
  --pipeline-model-parallel-size PP --checkpoint-activations \\
  --deepspeed --deepspeed_config ds_config.json --zero-stage ZERO MORE
"""

NEOX = """{
  "pipe_parallel_size": 0, "model_parallel_size": 2, "num_layers": 24, "hidden_size": 2048,
  "num_attention_heads": 16, "seq_length": 2048,
  "pos_emb": "rotary", # rotary
  "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2, "zero_optimization": {"stage": 1,},
  "fp16": {"enabled": true}, "checkpoint_activations": true, "vocab_file": "gpt2-vocab.json"
}"""

MPT = """
variables: {max_seq_len: 2048}
max_seq_len: ${variables.max_seq_len}
model: {name: mpt_causal_lm, d_model: 4096, n_heads: 32, n_layers: 32, expansion_ratio: 4, vocab_size:
50368, attn_config: {attn_impl: flash}}
global_train_batch_size: 256
device_train_microbatch_size: 8
precision: amp_bf16
fsdp_config: {sharding_strategy: FULL_SHARD, mixed_precision: PURE, activation_checkpointing: true}
"""

NEMO = """
trainer: {num_nodes: 16, devices: 8, precision: bf16, accumulate_grad_batches: 1}
model:
  micro_batch_size: 1
  global_batch_size: 256
  tensor_model_parallel_size: 8
  pipeline_model_parallel_size: 8
  virtual_pipeline_model_parallel_size: 6
  encoder_seq_length: 2048
  num_layers: 96
  hidden_size: 12288
  ffn_hidden_size: ${multiply:4, ${.hidden_size}}
  num_attention_heads: 96
  tokenizer: {library: megatron, type: GPT2BPETokenizer}
  sequence_parallel: true
  transformer_engine: true
  optim: {name: distributed_fused_adam, bucket_cap_mb: 400}
"""

BRIDGE = (
    "python run.py --model_recipe_name llama31_405b --gpu gb200 --num_gpus 128 --gpus_per_node 4 "
    "--compute_dtype fp8_cs --seq_length 8192 --global_batch_size 64 --tensor_model_parallel_size 4 "
    "--pipeline_model_parallel_size 8 --context_parallel_size 2 --virtual_pipeline_model_parallel_size 8"
)

PRIMUS = """
modules:
  pre_trainer:
    framework: megatron
    config: pre_trainer.yaml
    model: llama3.1_8B.yaml
    overrides: {seq_length: "${SEQ:8192}", sequence_parallel: 1, micro_batch_size: 2, global_batch_size:
    128, pipeline_model_parallel_size: 1, overlap_grad_reduce: true}
"""

MAXTEXT = (
    "base_config: base.yml\nmodel_name: llama3.1-70b\nhardware: gpu\nici_fsdp_parallelism: "
    "8\ndcn_data_parallelism: 2\ndcn_fsdp_parallelism: 2\nper_device_batch_size: "
    "2\nmax_target_length: 8192\nremat_policy: full\n"
)

FSDP = """
distributed_type: FSDP
mixed_precision: bf16
num_machines: 2
num_processes: 16
fsdp_config: {fsdp_sharding_strategy: FULL_SHARD, fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP}
"""

AXOLOTL = (
    "base_model: meta-llama/Llama-3.1-8B\nadapter: qlora\nload_in_4bit: true\nmicro_batch_size: "
    "1\nsequence_len: 2048\nbf16: true\n"
)

AXOLOTL_WHOLE = AXOLOTL.replace("adapter: qlora\nload_in_4bit: true\n", "flash_attention: true\n")
"""All weights are trained, and no adapter."""

TORCHTUNE = (
    "model: {_component_: torchtune.models.llama3_1.llama3_1_8b}\nbatch_size: 2\ndtype: "
    "bf16\ntokenizer: {max_seq_len: 4096}\n"
)

OLMO = (
    "model: {d_model: 4096, n_heads: 32, n_layers: 32, mlp_hidden_size: 22016, vocab_size: 100278, "
    "embedding_size: 100352, max_sequence_length: 4096, rope: true, flash_attention: true, "
    "weight_tying: false, include_bias: false, activation_type: swiglu}\nglobal_train_batch_size: "
    "1024\ndevice_train_microbatch_size: 2\nprecision: amp_bf16\nfsdp: {wrapping_strategy: "
    "by_block_and_size, precision: mixed}\n"
)

FILES: dict[str, tuple[str, str]] = {
    "torchtitan": ("run.toml", TITAN),
    "nanotron": ("run.yaml", NANO),
    "deepspeed": ("ds_config.json", DEEPSPEED),
    "deepspeed with Megatron": (
        "train.slurm",
        MEGATRON_DEEPSPEED.replace("ZERO", "1").replace("PP", "2").replace("MORE", ""),
    ),
    "gpt-neox": ("model.yml", NEOX),
    "llm-foundry": ("mpt.yaml", MPT),
    "nemo": ("run.yaml", NEMO),
    "megatron-bridge": ("run.sh", BRIDGE),
    "primus": ("run.yaml", PRIMUS),
    "maxtext": ("run.yml", MAXTEXT),
    "accelerate": ("fsdp.yaml", FSDP),
    "axolotl": ("run.yaml", AXOLOTL),
    "torchtune": ("run.yaml", TORCHTUNE),
    "olmo": ("OLMo.yaml", OLMO),
}
"""A name and a text of each."""
