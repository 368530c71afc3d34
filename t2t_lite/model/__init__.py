"""The paper: the Transformer, its losses and its costs."""
