"""What the commands share: the parser, the flags, how a command ends."""
