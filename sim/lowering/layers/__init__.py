"""One transformer layer as kernels and collectives, on one rank's shard."""
