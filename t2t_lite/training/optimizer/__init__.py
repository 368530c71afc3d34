"""One update: gradients, learning rates, the optimizer."""
