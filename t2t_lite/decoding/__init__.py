"""Ids to text: search, translation, lines in their order."""
