"""Scan: which names of TensorFlow and of the bridge a script uses, read from its source."""
