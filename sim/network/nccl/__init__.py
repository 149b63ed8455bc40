"""NCCL as its own tuning model sees it: paths of a communicator, predicted times, and what it chooses."""
