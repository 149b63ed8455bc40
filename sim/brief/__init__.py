"""The time and memory of a step, exact, without what only reports read, and with long steps shortened.

- one step: step.py; many layouts of a search: search.py; memory without a clock: memory.py;
- steps shortened by their steady state: steady.py, period.py (compares two periods), steady_turns.py
  (compares the last turns before two cuts), steady_pairs.py (the same of DualPipe's pairs), pace.py (how
  long hosts keep their lead);
- lower bounds: floor.py, with arrivals.py, action_turns.py and timed_blocks.py; least.py (nobody shares a
  link).
"""
