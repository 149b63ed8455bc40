"""NCCL as its own nccl model sees it: paths of a communicator, predicted times, and what it chooses."""
