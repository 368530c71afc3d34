"""Whether a training fits into the memory of its devices, and its time."""
