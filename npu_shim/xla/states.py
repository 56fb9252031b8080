"""The variables of a step, and what they hold when it begins."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Mapping, Sequence

import numpy as np
import tensorflow.compat.v1 as tf

from npu_shim.rewriter.analysis import writes
from npu_shim.rewriter.errors import ConfigError
from npu_shim.rewriter.ir.graph import Node
from npu_shim.rewriter.ir.module import Module
from npu_shim.step import counters, packing
from npu_shim.xla.sources import Source


@dataclass(frozen=True)
class StateVariable:
    """A variable of the step.

    Attributes:
        name: the variable's name in the graph, which is its name in TensorFlow's checkpoints.
        dtype: tf.DType.
        static: its tf.TensorShape, which may have open sizes.
        updated: whether the step writes to it.
        initial: a list of its value, np.ndarray, None for zeros.
        node: name of its node in the graph; "" for one that the graph does not have.
    """

    name: str
    dtype: Any
    static: Any
    updated: bool
    initial: list[Any] = field(repr=False, compare=False)
    node: str = ""

    @property
    def value(self) -> Any:
        """Its value, np.ndarray."""
        (value,) = self.initial
        return np.zeros(self.static, self.dtype.as_numpy_dtype) if value is None else value

    def assign(self, value: Any) -> None:
        """Gives it another value, np.ndarray of its dtype and of a shape that fits `static`."""
        self.initial[:] = [value]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of its value; the static one may be unknown."""
        if self.static.is_fully_defined():
            return tuple(self.static.as_list())
        return tuple(np.shape(self.value))


def of_module(module: Module, values: Mapping[str, Any] | None, source: Source) -> tuple[StateVariable, ...]:
    """The variables of a step's module in the order of their names.

    Args:
        module: of the step alone, as the script has built it: with reference variables or resources.
        values: name of a variable -> np.ndarray; None takes those of the source.
        source: the Source.

    Raises:
        ConfigError: a variable has no value and no full shape.
    """
    named = [(packing.variable_name(node), node) for node in module.graph if node.op in packing.VARIABLES]
    nodes = dict(named)  # several may be of one variable
    written = set(writes.written(module.graph))
    updated = {name for name, node in named if node in written}
    if values is None:
        values = source.values_of({name: node.name for name, node in nodes.items()})
    return tuple(_variable(name, nodes[name], values.get(name), name in updated) for name in sorted(nodes))


def _variable(name: str, node: Node, value: Any, updated: bool) -> StateVariable:
    shape = tf.TensorShape(_sizes(node.attrs.get("shape")))
    if value is None and not shape.is_fully_defined():
        raise ConfigError("variable '%s' has shape %s, expected a value for it" % (name, shape))
    return StateVariable(name, tf.as_dtype(int(node.attrs["dtype"])), shape, updated, [value], node.name)


def _sizes(shape: Any) -> Any:
    """A Shape as a tf.TensorShape takes it."""
    return None if shape is None or shape.dims is None else [None if size < 0 else size for size in shape.dims]


def of_draws(draws: Sequence[Any]) -> tuple[StateVariable, ...]:
    """The state of random ops, which `step.packing.draws` gives."""
    if not draws:
        return ()
    value = counters.initial_state(draws)
    return (StateVariable(counters.state_name(draws), tf.int64, tf.TensorShape(value.shape), True, [value]),)
