"""The job: how many processes there are, which one this is, and how they form a TensorFlow cluster."""
