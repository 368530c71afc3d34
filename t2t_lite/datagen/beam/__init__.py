"""Shards made by Apache Beam, on as many machines as it has."""
