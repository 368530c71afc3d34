"""Shards to batches."""
