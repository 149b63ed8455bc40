"""What an order of actions is, when it ends, what it holds, and whether it can be run, ours or anyone's."""
