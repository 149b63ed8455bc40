"""Real steps, explained: where their time went, and how that differs from what was predicted.

- steps as traces show them: step_record.py; read by reading.py from from_kineto.py, from_nsys.py,
  from_operations.py, and from_result.py (a prediction);
- figures: explained.py, breakdown.py, axes.py, ranks.py (several ranks), repeats.py, worst_ops.py;
- stragglers: stragglers.py, waiting_order.py;
- views: tables.py, picture.py, heat_map.py.
"""
