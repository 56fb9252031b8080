"""Options of compiled steps that are one word of a few: in a config, else in the environment. No TensorFlow."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Mapping

from npu_shim.pjrt.placement import SHARDED
from npu_shim.rewriter.errors import one_of


@dataclass(frozen=True)
class Word:
    """An option that is one word.

    Attributes:
        name: what it decides.
        variable: its variable of the environment; the key in a config is the same in small letters.
        known: the words that it accepts; the first is the default.
    """

    name: str
    variable: str
    known: tuple[str, ...]

    @property
    def key(self) -> str:
        """The option's key in a config."""
        return self.variable.lower()

    def of(self, values: Mapping[str, Any]) -> str:
        """Returns the word that is asked for.

        Args:
            values: option values; they win over the environment.

        Raises:
            ConfigError: another word.
        """
        if values.get(self.key) is not None:
            return one_of(values[self.key], self.known, self.name)
        return one_of(os.environ.get(self.variable) or self.known[0], self.known, self.variable)


# whether attention becomes kernels on GPUs
ATTENTION = Word("attention", "NPU_SHIM_ATTENTION", ("auto", "off"))
# which state each of several devices has a part of
SHARD_STATE = Word("shard_state", "NPU_SHIM_SHARD_STATE", tuple(SHARDED))
# how much of the forward pass is computed again in the backward pass
RECOMPUTE = Word("recompute", "NPU_SHIM_RECOMPUTE", ("auto", "off", "memory"))
