"""Kernels measured on the device at hand: which, how, and their CSV. torch loads when it is called."""
