"""People's files to pairs of text."""
