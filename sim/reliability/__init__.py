"""Faults over weeks: what fails, how it is noticed, what recovery costs, what is left of the time."""
