"""All layouts of a space at once, as arrays: whether each fits in memory, and a lower bound of its step time.

Read screen.py first, then memory.py and bound.py.

- what layouts share, so that it is computed once: tables.py, alike.py, numbering.py, rank_classes.py,
  stages.py;
- memory of the fullest stage: memory.py, layer_activations.py, in_flight.py;
- the bound: bound.py, times.py (blocks by themselves), sharded_times.py and sharded_blocks.py (with gathers
  and reductions around them), slowest.py (the rank with the slowest groups), steps.py and turns.py (orders of
  pipeline actions).
"""
