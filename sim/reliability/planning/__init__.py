"""From a document to a campaign: blocks, rates, checkpoints in bytes and seconds, step times, traces."""
