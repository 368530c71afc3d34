"""Code that the commands share: parser, flags, error handling, output."""
