"""Faults over weeks: what fails, how it is noticed, what recovery costs, and what is left of the run's time."""
