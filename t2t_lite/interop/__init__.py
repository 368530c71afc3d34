"""Formats and engines of other toolkits."""
