"""Options of compiled steps that are one word of a few: in a config, else in the environment. No TensorFlow."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Mapping

from npu_shim.rewriter.errors import one_of


@dataclass(frozen=True)
class Word:
    """An option that is one word.

    Attributes:
        name: what it decides; its key is `npu_shim_` and this, its variable of the environment the same in capitals.
        known: the words that it accepts; the first is the default.
    """

    name: str
    known: tuple[str, ...]

    @property
    def key(self) -> str:
        """The option's key in a config."""
        return "npu_shim_" + self.name

    def of(self, values: Mapping[str, Any]) -> str:
        """Returns the word that is asked for.

        Args:
            values: option values; they win over the environment.

        Raises:
            ConfigError: another word.
        """
        if values.get(self.key) is not None:
            return one_of(values[self.key], self.known, self.name)
        variable = self.key.upper()
        return one_of(os.environ.get(variable) or self.known[0], self.known, variable)


# whether attention becomes kernels on GPUs
ATTENTION = Word("attention", ("auto", "off"))
# how much of the forward pass is computed again in the backward pass
RECOMPUTE = Word("recompute", ("auto", "off", "memory"))
