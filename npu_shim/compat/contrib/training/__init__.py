"""tf.contrib.training: batches of examples, hyperparameters, where variables are placed."""
