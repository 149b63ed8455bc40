"""One campaign: weeks of steps, failures, detection, recovery and checkpoints on one clock."""
