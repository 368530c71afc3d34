"""Checkpoints of a run: their files, which one is meant, their average."""
