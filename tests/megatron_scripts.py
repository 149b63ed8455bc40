"""Launch scripts of Megatron-LM, as arguments."""

from __future__ import annotations

BASE = (
    "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096 --micro-batch-size 1"
    " --global-batch-size 64 --tokenizer-model meta-llama/Llama-3.1-8B --bf16"
)
MOE = " --num-experts 8 --moe-grouped-gemm --moe-token-dispatcher-type alltoall"


def args(more: str = "", base: str = BASE) -> dict[str, str]:
    return {"train.args": f"{base} {more}"}
