"""What a scenario says of faults, detection, recovery, checkpoints and the run: fields, units, checks,
targets.
"""
