"""Trees to bracket F1."""
