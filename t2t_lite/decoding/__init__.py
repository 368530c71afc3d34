"""Decoding: beam search, translation of texts and of streams of lines."""
