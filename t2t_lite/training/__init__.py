"""Batches to checkpoints."""
