"""The search: one loop, its changes of scores, its choices; knows no model."""
