"""Keras: one by whatever name it is imported, with the classes and arguments of its time."""
