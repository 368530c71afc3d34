"""What streams of lines are made of: requests, batches, replicas."""
