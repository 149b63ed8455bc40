"""The only part of stepsim with a clock: replays programs in SimPy and reads the record."""
