"""Beam search and sampling with logits processors, independent of the model."""
