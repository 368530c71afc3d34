"""Pairs to shards, killable at any time."""
