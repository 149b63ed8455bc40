"""Writes ZeRO-2, ZeRO-3 and FSDP: parameters gathered around blocks, gradients reduced behind them."""
