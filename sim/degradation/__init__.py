"""Faults inside a step: what they do to ranks and links, and what the step loses to whom."""
