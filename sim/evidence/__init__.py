"""What a prediction rests on, and how sure it is.

- what it rests on: assumptions.py, coverage.py (measured ranges), placement_facts.py, notes.py (hints);
- the 90 % interval: interval.py puts its causes together, which are interval_beyond.py (outside of measured
  ranges), interval_hardware.py, interval_host.py, interval_kernel.py, interval_overlap.py,
  interval_routing.py, interval_slowest.py, interval_waits.py and run_noise.py;
- measured runs that it is learnt from: measured_steps.py, own_steps.py (a user's), measured_layouts.py,
  measured_memory.py.
"""
