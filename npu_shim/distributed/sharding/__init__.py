"""Weight-update sharding: each rank owns the update of some variables, and whole checkpoints are collected."""
