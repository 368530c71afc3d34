"""Helpers of several test files: paths, toy runs, toy problems."""
