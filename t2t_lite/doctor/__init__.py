"""Whether a machine, its data, a run and a cluster are in order."""
