"""Writes ZeRO-2, ZeRO-3 and FSDP: parameters gathered around blocks, gradients reduced behind them.

Read units.py (what is gathered together) and rows.py (around which block) first.

- blocks with collectives around them: compose.py; of a forward beside a backward: pairs.py;
- the collectives: traffic.py, communicators.py (their names), combined.py and hiding.py (XLA's rules);
- memory besides shards: held.py.
"""
