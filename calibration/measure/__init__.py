"""Measures kernels and collectives on this machine. torch loads when a measurement begins.

Read session.py first (point after point until the budget is spent), then points.py (which shapes).

- what is measured: points.py, scale.py, plan.py (what each shipped profile is made of), layer.py (the kernels
  of one layer), collectives.py with work.py;
- how: operands.py, timing.py, device.py, nvml.py (clock, power, temperature);
- what is kept, and what is there: kernel_csv.py, installation.py.
"""
