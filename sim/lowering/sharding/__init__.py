"""Writes sharded data parallelism: parameters gathered around blocks, gradients reduced behind them."""
