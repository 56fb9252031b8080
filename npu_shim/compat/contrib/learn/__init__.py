"""The parts of tf.contrib.learn that work: configuration, input functions, local data sets, preprocessing."""
