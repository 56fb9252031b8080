"""What Python and its libraries have removed since TensorFlow 1's days."""
