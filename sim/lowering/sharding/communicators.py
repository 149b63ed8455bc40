"""Names of the communicators of sharded data parallelism, and of their streams."""

from __future__ import annotations

SHARDS, REPLICAS = "fsdp", "hsdp"
"""The group that holds one copy of the state between its ranks, and the group that holds equal shards of
it."""

EXPERT_SHARDS, EXPERT_REPLICAS = "efsdp", "ehsdp"
"""The same two groups for the state of experts."""
