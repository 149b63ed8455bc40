"""Questions that take many predictions: fewest GPUs, longest sequences, sweeps, sensitivity."""
