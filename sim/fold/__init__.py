"""Folding: which ranks must do the same at the same time, so that one of them is replayed for all."""
