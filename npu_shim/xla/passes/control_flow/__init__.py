"""Passes over loops and conditionals: TensorFlow 1's to While and If, and what is only possible before or after."""
