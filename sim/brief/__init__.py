"""The time and memory of a step, exact and without what only reports read: long steps are shortened."""
