"""What we wrote of tf.contrib ourselves; which of its names means what is in names.json."""
