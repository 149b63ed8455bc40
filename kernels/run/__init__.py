"""Kernels that run, one a file: Triton, the unfused torch chain, the cost. torch loads when called.

- GEMMs: gemm.py; attention: attention.py, attention_backward.py, attention_tile.py;
- bound by memory: activation.py, norm.py, cross_entropy.py, adam.py, stream.py (copy and triad);
- how Triton's kernels load without Triton: lazy_jit.py.
"""
