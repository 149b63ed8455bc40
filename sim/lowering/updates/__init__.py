"""What follows the backward passes: gradient reduction, the optimizer, the end of the step."""
