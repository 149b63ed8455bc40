"""Measured runs beside predictions: read cases, predict each, say how far off, and where.

Knows the case files and the scenario that a case becomes; the simulator sees no id and no outcome.
"""
