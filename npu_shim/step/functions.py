"""Steps as JAX functions for programs that know no TensorFlow: to jit, shard and differentiate, or to call from Flax.

step = functions.load("step.npz")                 what `npu_shim.export.write_jax` wrote
with jax.enable_x64(True):
    state, fetched = jax.jit(step)(step.state, {"x:0": images})
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Mapping

import numpy as np

from npu_shim.pjrt import arrays
from npu_shim.rewriter.errors import ConfigError, nearest
from npu_shim.step import interpreter
from npu_shim.step.unpacking import unpacked

GRAPH = "npu_shim/graph"  # the name of the packed graph among the variables of a file


@dataclass(frozen=True, eq=False)  # jax.jit wants a function that has a hash
class Step:
    """A step of a TensorFlow graph as a pure function.

    Attributes:
        state: variable's name -> np.ndarray, its first value; random ops with seeds of their own have theirs there.
        feeds: names of what it is fed.
        fetches: names of the tensors that it gives.
    """

    state: Mapping[str, Any]
    feeds: tuple[str, ...]
    fetches: tuple[str, ...]
    _function: Callable[..., Any]

    def __call__(self, state: Mapping[str, Any], feeds: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Computes a step; jax.jit, jax.grad and the like take it.

        Args:
            state: as the attribute; int64 variables must be int64: JAX makes them int32 without `jax.enable_x64`.
            feeds: name -> array.

        Returns:
            (the new state, name -> value of what is fetched)

        Raises:
            ConfigError: a variable or feed is missing, or unknown.
            Refusal: the graph holds what has no rule, or must know a value that is traced.
        """
        given = {name if ":" in name else name + ":0": value for name, value in feeds.items()}
        _require("feed", given, self.feeds)
        _require("variable", state, self.state)
        with interpreter.traced_as_tensorflow():
            new, fetched = self._function(state, given)
        return {**state, **new}, fetched


def _require(what: str, given: Mapping[str, Any], wanted: Any) -> None:
    for name in given:
        if name not in wanted:
            raise ConfigError("%s '%s' is none of the step's%s" % (what, name, nearest(name, wanted)))
    missing = [name for name in wanted if name not in given]
    if missing:
        raise ConfigError("%s '%s' is missing, and %d others" % (what, missing[0], len(missing) - 1))


def of(content: bytes, state: Mapping[str, Any]) -> Step:
    """Returns the Step of a packed graph.

    Args:
        content: what `step.packing.packed` returns.
        state: name -> np.ndarray.
    """
    program = unpacked(content)
    return Step(dict(state), tuple(program.feeds.values()), program.fetches, interpreter.function(program))


def load(path: str) -> Step:
    """Reads what `npu_shim.export.write_jax` wrote. Raises ConfigError for another file."""
    held = arrays.read(path)
    if GRAPH not in held:
        raise ConfigError("file '%s' holds no step: npu_shim.export.write_jax writes one" % path)
    return of(np.asarray(held.pop(GRAPH)).tobytes(), held)
