"""The commands, one file each; `main` is the front door to all of them."""
