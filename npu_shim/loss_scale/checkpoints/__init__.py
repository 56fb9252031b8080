"""Checkpoints of other optimizers, restored into those that scale the loss, and the other way round."""
