"""Loops, branches and calls, of both of TensorFlow's versions."""
