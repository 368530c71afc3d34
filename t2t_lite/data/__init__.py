"""Shards to batches: manifest, bucketing, packing and input pipeline."""
