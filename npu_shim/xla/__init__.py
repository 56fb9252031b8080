"""A training step as one program, compiled by XLA as a whole."""
