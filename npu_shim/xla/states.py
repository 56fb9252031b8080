"""The variables of a step, and what they hold when it begins."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any, Collection, Mapping, Sequence

import numpy as np
import tensorflow.compat.v1 as tf
import tensorflow.compat.v2 as v2

from npu_shim.rewriter import tf_internals
from npu_shim.rewriter.errors import ConfigError
from npu_shim.step import counters
from npu_shim.xla import tracing
from npu_shim.xla.passes.resources import random_ops, writers
from npu_shim.xla.sources import Source

_CREATING = threading.Lock()


@dataclass(frozen=True)
class StateVariable:
    """A variable of the step.

    Attributes:
        name: the variable's name in the graph, which is its name in TensorFlow's checkpoints.
        dtype: tf.DType.
        static: its tf.TensorShape, which may have open sizes.
        updated: whether the step writes to it.
        initial: a list of its value at first (np.ndarray, None for zeros), until `variable` takes it.
    """

    name: str
    dtype: Any
    static: Any
    updated: bool
    initial: list[Any] = field(repr=False, compare=False)

    @property
    def variable(self) -> Any:
        """A tf.Variable of eager mode (see `tf_internals.eager_mode`) with its value, made when it is first asked for.

        A step on another device has its values there: as much memory is not taken here without need.
        """
        kept = vars(self)
        with _CREATING:
            if "_variable" not in kept:
                value = self.initial[0]
                value = np.zeros(self.static, self.dtype.as_numpy_dtype) if value is None else value
                with tf_internals.eager_mode():
                    kept["_variable"] = v2.Variable(value, dtype=self.dtype, trainable=False, shape=self.static)
                self.initial.clear()
        return kept["_variable"]

    @property
    def value(self) -> Any:
        """Its value, np.ndarray."""
        with tf_internals.eager_mode():
            return self.variable.numpy()

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of its value; the static one may be unknown."""
        if self.static.is_fully_defined():
            return tuple(self.static.as_list())
        return tuple(np.shape(self.initial[0] if self.initial else self.value))


def of_graph(
    graph_def: Any, written: Collection[str], values: Mapping[str, Any] | None, source: Source
) -> tuple[StateVariable, ...]:
    """The variables of a GraphDef in the order of their names.

    Args:
        graph_def: with resource variables.
        written: names of the handles that the step writes to.
        values: name of a variable -> np.ndarray; None takes those of the source.
        source: the Source.

    Raises:
        ConfigError: a variable has no value and no full shape.
    """
    named = [(writers.variable_name(node), node) for node in tracing.handles_of(graph_def)]
    handles = dict(named)  # several nodes may be handles of one variable
    updated = {name for name, node in named if node.name in written}
    if values is None:
        values = source.values_of({name: node.name for name, node in handles.items()})
    return tuple(
        _variable(name, node, values.get(name), name in updated) for name, node in sorted(handles.items())
    )


def _variable(name: str, node: Any, value: Any, updated: bool) -> StateVariable:
    dtype, shape = tf.as_dtype(node.attr["dtype"].type), tf.TensorShape(node.attr["shape"].shape)
    if value is None and name == random_ops.STATE:
        value = random_ops.initial_state()
    if value is None and not shape.is_fully_defined():
        raise ConfigError("variable '%s' has shape %s, expected a value for it" % (name, shape))
    return StateVariable(name, dtype, shape, updated, [value])


def of_draws(draws: Sequence[Any]) -> tuple[StateVariable, ...]:
    """The state of random ops, which `step.packing.draws` gives."""
    if not draws:
        return ()
    value = counters.initial_state(draws)
    return (StateVariable(counters.state_name(draws), tf.int64, tf.TensorShape(value.shape), True, [value]),)
