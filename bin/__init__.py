"""The commands, one file each: `t2t-lite-<name>`, or `t2t-lite <name>`."""
