"""Random numbers: TensorFlow's own, from an op's seeds and a counter that is part of the step's state."""
