"""What a simulated step is, as data: figures, memory, faults, and all of it as one document. No views.

Read result.py first (one predicted step), then step.py (spans, classes of ranks, critical path).

- cost: cost.py (a step), energy.py (its power), outlook.py (a token budget), loss_scaling.py;
- steps that differ: step_faults.py, step_hang.py, step_bounds.py, variation.py, gpu_kinds.py, neighbours.py;
- JSON: document.py.
"""
