"""What a rank holds: parameters with their states, and activations."""
