"""Kernels that run, one a file: Triton, the unfused torch chain, the cost. torch loads when called."""
