"""Steps as JAX functions for programs that know no TensorFlow: to jit, shard and differentiate, or to call from Flax.

step = functions.load("step.npz")                 what `npu_shim.export.write_jax` wrote
with jax.enable_x64(True):
    state, fetched = jax.jit(step)(step.state, {"x:0": images})
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Mapping

import jax
import numpy as np

from npu_shim.pjrt import arrays
from npu_shim.rewriter.errors import ConfigError, nearest
from npu_shim.step import interpreter
from npu_shim.step.graph import Variable
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
    _fed: Mapping[str, Variable]  # what the graph says of the feeds, and of the variables
    _held: Mapping[str, Variable]

    def __call__(self, state: Mapping[str, Any], feeds: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Computes a step; jax.jit, jax.grad and the like take it.

        Args:
            state: as the attribute; int64 variables must be int64: JAX makes them int32 without `jax.enable_x64`.
            feeds: name -> array_like; what is no array of JAX's is converted, as sess.run does.

        Returns:
            (the new state, name -> value of what is fetched)

        Raises:
            ConfigError: a variable or feed is missing, unknown, or of another dtype or shape.
            Refusal: the graph holds what has no rule, or must know a value that is traced.
        """
        _require_named("feeds", feeds)
        given = {name if ":" in name else name + ":0": value for name, value in feeds.items()}
        _require("feed", given, self.feeds)
        _require("variable", state, self.state)
        given = _all_fitted("feed", given, self._fed)
        state = _all_fitted("variable", state, self._held)
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


def _require_named(what: str, given: Any) -> None:
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise ConfigError("%s must be a dict of names to arrays, and names are str" % what)


def _all_fitted(kind: str, given: Mapping[str, Any], wanted: Mapping[str, Variable]) -> dict[str, Any]:
    """Values by name, each `_fitted` to what the graph says of it, if it says anything."""
    fitted = {name: _fitted("%s '%s'" % (kind, name), given[name], wanted[name]) for name in given if name in wanted}
    return {**given, **fitted}


def _fitted(what: str, value: Any, wanted: Variable) -> Any:
    """A value in the dtype that the graph has for it; ConfigError where that, or its shape, is another one.

    JAX's own values keep their dtype, so that nobody trains in another one than the graph's unawares; but for plain
    numbers, which JAX gives one of its own.
    """
    is_cast = not isinstance(value, jax.Array) or value.weak_type
    if is_cast and not isinstance(value, jax.core.Tracer):
        value = arrays.as_dtype(what, value, wanted.dtype)
    elif is_cast and np.can_cast(value.dtype, wanted.dtype, "same_kind"):
        value = value.astype(wanted.dtype)
    if value.dtype != wanted.dtype:
        is_narrowed = np.dtype(wanted.dtype).itemsize == 8 and value.dtype.itemsize < 8
        hint = ": call the step within jax.enable_x64(True)" if is_narrowed else ""
        raise ConfigError("%s is %s, expected %s%s" % (what, value.dtype, wanted.dtype, hint))
    shape = np.shape(value)
    sizes = shape if wanted.shape is None else wanted.shape
    if len(shape) != len(sizes) or any(size not in (-1, own) for size, own in zip(sizes, shape)):
        text = "%s has shape %s, the graph expects %s"
        raise ConfigError(text % (what, list(shape), [None if size < 0 else size for size in sizes]))
    return value


def of(content: bytes, state: Mapping[str, Any]) -> Step:
    """Returns the Step of a packed graph.

    Args:
        content: what `step.packing.packed` returns.
        state: name -> np.ndarray.
    """
    program = unpacked(content)
    nodes = program.graph.nodes  # of a feed that nothing needs there is none
    placeholders = {fed: nodes[name].attrs for name, fed in program.feeds.items() if name in nodes}
    fed = {name: Variable(attrs["dtype"], attrs.get("shape")) for name, attrs in placeholders.items()}
    feeds, function = tuple(program.feeds.values()), interpreter.function(program)
    return Step(dict(state), feeds, program.fetches, function, fed, program.variables)


def load(path: str) -> Step:
    """Reads what `npu_shim.export.write_jax` wrote. Raises ConfigError for another file."""
    held = arrays.read(path)
    if GRAPH not in held:
        raise ConfigError("file '%s' holds no step: npu_shim.export.write_jax writes one" % path)
    return of(np.asarray(held.pop(GRAPH)).tobytes(), held)
