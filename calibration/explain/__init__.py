"""Real steps, explained: where their time went, and how that differs from what was predicted."""
