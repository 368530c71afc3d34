"""Shared parts of the commands: the parser, the flags, how a command ends."""
