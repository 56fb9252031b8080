"""Spaces of observations and actions."""

from .box import Box


class Discrete:
    def __init__(self, n):
        self.n = n


class MultiDiscrete:
    def __init__(self, nvec):
        self.nvec = nvec


__all__ = ["Box", "Discrete", "MultiDiscrete"]
