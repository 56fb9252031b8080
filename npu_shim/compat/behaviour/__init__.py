"""Functions and classes of TensorFlow that do again what those of 1.15 did."""
