"""The profile `grappler`: TensorFlow's own auto mixed precision rule, node by node."""
