"""NPUEstimator, its hooks and loops, and Keras."""
