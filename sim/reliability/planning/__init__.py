"""Build a campaign from a document: blocks, rates, checkpoints in bytes and seconds, step times, traces."""
