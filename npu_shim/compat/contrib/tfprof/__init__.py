"""tf.contrib.tfprof, on the profiler that TensorFlow 2 still has."""
