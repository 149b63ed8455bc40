"""The simulator: from a scenario to a step's time, memory and causes. Knows no measurements; the clock is
in engine/."""
