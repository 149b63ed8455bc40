"""MLCommons Chakra's execution traces: written for a scenario, checked, and replayed, ours or anyone's.

Read replay.py first (from end to end), then node.py (a trace as data).

- files: files.py, schema.py (Chakra's messages), host_trace.py (PyTorch's host); checks: validate.py;
- our own traces: from_programs.py, to_programs.py, repricing.py (on another cluster);
- anyone's: foreign.py, pricing.py.
"""
