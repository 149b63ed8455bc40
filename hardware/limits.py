"""What no size of a model, a batch, a cluster or an option is beyond. Numbers alone, for shells too."""

LARGEST = 10**12
"""No size of a model, a batch or a cluster is beyond it: a slip of the keyboard is."""

MOST_GPUS = 10_000_000
"""Most GPUs of one job; the largest clusters that are built have some hundred thousand."""
