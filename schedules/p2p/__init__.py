"""How the frameworks move results between the ranks of a pipeline: orders with their sends and receives."""
