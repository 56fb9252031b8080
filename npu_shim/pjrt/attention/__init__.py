"""Attention as one call of a function, which a program for a GPU gets a kernel for. No TensorFlow."""
