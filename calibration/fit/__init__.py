"""Fits of measurements to the constants of a profile: kernels, collectives, and what carries over."""
