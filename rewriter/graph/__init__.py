"""Graphs as immutable values, and what can be read from them without TensorFlow."""
