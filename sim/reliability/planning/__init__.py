"""Build a campaign from a document: blocks, rates, checkpoints in bytes and seconds, step times, traces.

Read build_plan.py first, which has every number at hand.

- what a document says: blocks.py, checks.py;
- faults: sources.py, from files traces.py, from records of real clusters record.py;
- seconds: step_time.py (a step under faults), tiers.py (checkpoints);
- how much there is to simulate: estimate.py.
"""
