"""Optimizers that scale the loss, unscale the gradients and leave out the steps that overflow."""
