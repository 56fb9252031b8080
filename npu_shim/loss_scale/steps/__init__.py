"""What is known of single steps: whether one overflowed, how many did, and who is told."""
