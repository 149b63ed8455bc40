#!/bin/bash
torchrun --nproc_per_node 8 --nnodes 1 pretrain_gpt.py --num-layers 4 --hidden-size 1024 --num-attention-heads 8 --seq-length 1024 --vocab-size 32000 --micro-batch-size 1 --global-batch-size 8 --bf16 --num-experts 8 --ffn-hidden-size 0 --moe-shared-expert-intermediate-size 512 --moe-grouped-gemm --moe-token-dispatcher-type alltoall
