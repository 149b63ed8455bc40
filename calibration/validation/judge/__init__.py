"""What predictions are held to: ranks inside sweeps, baselines, cross-validation, and the verdicts."""
