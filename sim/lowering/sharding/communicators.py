"""How the communicators of sharded data parallelism, and their streams, are called."""

from __future__ import annotations

SHARDS, REPLICAS = "fsdp", "hsdp"
"""Of the shard group and of equal shards, where they are two."""

EXPERT_SHARDS, EXPERT_REPLICAS = "efsdp", "ehsdp"
"""Of the shard group of experts and of equal shards of experts."""
