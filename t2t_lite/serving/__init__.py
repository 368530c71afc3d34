"""Export of trained models, a server and a client."""
