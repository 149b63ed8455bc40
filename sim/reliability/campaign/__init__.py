"""One campaign: weeks of steps, failures, detection, recovery and checkpoints on one clock.

replicate.py runs one replication of plan.py's numbers. By subject:

- the job while it runs: stepping.py, timeline.py (steps and checkpoints in closed form), writer.py (copies
  that are being written);
- the job while it does not: recovering.py, recovering_rules.py, restarting.py;
- faults: sources.py, fault.py, chance.py (random numbers);
- hosts: pool.py (spares and repairs), replicas.py (data-parallel replicas with empty slots);
- what is kept: state.py, ledger.py (where the time went), outcome.py.
"""
