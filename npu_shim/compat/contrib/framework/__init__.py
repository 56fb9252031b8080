"""What of tf.contrib.framework tf-slim lacks."""
