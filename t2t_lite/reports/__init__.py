"""What a run tells of itself: its card, and its curves beside others'."""
