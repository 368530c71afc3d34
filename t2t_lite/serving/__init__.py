"""An export, asked."""
