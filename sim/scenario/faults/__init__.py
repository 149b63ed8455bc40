"""What a scenario says of faults, detection, recovery, checkpoints and the run: fields, units, checks,
targets.

Read faults.py first (the block ``faults``, and one fault as a line), then kinds.py (which kinds there are).

- further blocks: detection.py, recovery.py; what blocks share: fields.py, laws.py (of chance);
- where a fault strikes: targets.py, machine.py; a campaign without a model: bare.py.
"""
