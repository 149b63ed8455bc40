"""Every layout of a space at once: the memory of its fullest stage, and a lower bound of its step."""
