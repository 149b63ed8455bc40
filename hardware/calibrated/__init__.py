"""Profiles of a user's own: the files that calibration writes, checked and laid over the shipped ones."""
