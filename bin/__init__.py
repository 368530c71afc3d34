"""The commands, one file each; installed as `t2t-lite-<name>`, or `t2t-lite <name>`."""
