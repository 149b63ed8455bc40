"""The simulator: from a scenario to a step's time, memory and causes. Knows no measurements; the clock is
in engine/.

Read simulate.py first: load, build, lower, fold, replay, result. docs/architecture.md
says what each folder holds.

- one step: simulate.py, step_run.py (a simulation as it goes on), read_record.py and step_result.py (what
  was recorded, as a result), estimate.py (what a simulation costs before it starts);
- with faults or unequal GPUs: degraded_step.py, degraded_replay.py, balance.py (layers of stages on
  different GPUs), neighbours.py (jobs that share a fabric);
- programs from a file: replay.py;
- shared: children.py (forked processes), defects.py (whose mistake an error is), figures.py (numbers as
  people read them).
"""
