"""The devices and machines that share an update."""
