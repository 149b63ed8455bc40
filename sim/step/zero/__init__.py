"""Which rule of sharded data parallelism a scenario follows: ZeRO-2, ZeRO-3, FSDP, by framework."""
