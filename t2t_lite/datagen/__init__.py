"""Data generation: pairs to shards, resumable after any interruption."""
