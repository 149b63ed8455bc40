"""What-if figures of stragglers: how long a step would take if some operations took as long as usual."""
