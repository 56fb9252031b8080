"""Stacks, TensorArrays and lists: what loops keep."""
