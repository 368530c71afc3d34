"""Export and serving of trained models."""
