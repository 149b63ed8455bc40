"""Runnable scenarios that ship with stepsim, each with its citation: ``stepsim run NAME``."""
