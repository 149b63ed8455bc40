"""Measured runs: case files, the scenario that each means, its prediction, and errors by family."""
