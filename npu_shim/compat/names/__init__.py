"""Where the names of TensorFlow 1 are today: one table, and the modules that scripts see."""
