"""Modules of TensorFlow that it has dropped."""
