"""The Transformer: layers, losses, decoder cache and FLOPs."""
