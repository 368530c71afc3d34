"""tensor2tensor's checkpoints as runs, exact to the rounding."""
