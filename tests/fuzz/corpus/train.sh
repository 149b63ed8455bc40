#!/bin/bash
# A small model on two hosts: variables, arrays, a condition and continued lines.
GPUS_PER_NODE=8
NNODES=${SLURM_NNODES:-2}
TP=${TP:-2}
MODEL_ARGS=(
    --num-layers 8 --hidden-size 1024 --num-attention-heads 16 --seq-length 2048
    --max-position-embeddings 2048 --vocab-size 32000 --tokenizer-type NullTokenizer
    --swiglu --normalization RMSNorm --position-embedding-type rope --disable-bias-linear
)
if [ "$TP" -gt 1 ]; then
    PARALLEL="--tensor-model-parallel-size $TP --sequence-parallel"
else
    PARALLEL=""
fi
torchrun --nproc_per_node $GPUS_PER_NODE --nnodes "$NNODES" pretrain_gpt.py \
    "${MODEL_ARGS[@]}" $PARALLEL \
    --micro-batch-size 1 --global-batch-size $((GPUS_PER_NODE * 4)) \
    --bf16 --use-distributed-optimizer --overlap-grad-reduce --lr 3e-4
