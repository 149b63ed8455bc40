"""Every layout of a space at once: the memory of its fullest stage, and a bound that no step of it beats."""
