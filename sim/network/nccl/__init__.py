"""NCCL, as its own tuning model sees a communicator: paths, predicted times, and the choice of algorithm and protocol."""
