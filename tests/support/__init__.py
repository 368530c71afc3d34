"""What several test files share: places, toy runs, toy problems."""
