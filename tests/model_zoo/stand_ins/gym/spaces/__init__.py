"""Spaces of observations and actions."""

from .box import Box


class Discrete:
    def __init__(self, n):
        self.n = n


__all__ = ["Box", "Discrete"]
