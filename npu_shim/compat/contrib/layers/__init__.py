"""What of tf.contrib.layers tf-slim lacks; see also feature_columns."""
