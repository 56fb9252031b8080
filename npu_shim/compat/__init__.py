"""TensorFlow 1 scripts on TensorFlow 2: the `tensorflow` they import, and the launcher that runs them."""
