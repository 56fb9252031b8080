"""The argument of a table row: a node's inputs, attributes and variables, in the graph that the row builds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping, Sequence

import numpy as np
import tensorflow.compat.v1 as tf

from npu_shim.rewriter import tf_internals
from npu_shim.rewriter.errors import PlanError
from npu_shim.rewriter.ir import attributes
from npu_shim.rewriter.ir.graph import Node

ROWS = "_npu_shim_rows"  # attribute of a node: the number of rows of its result, where it is known beforehand
VALUE = "_npu_shim_value"  # attribute of a node: its result, a number, where that is known beforehand


class NotConstant(PlanError):
    """An input that XLA must know at compile time and does not.

    Attributes:
        node: name of the node that needs it.
        number: of its input.
        counts: whether only the last value of the input matters: that plus 1 is what the node's attribute ROWS takes.
        equals: names of the Switches of loop variables that leave their loop with the value of the input, which the
            node's attribute VALUE takes; empty for inputs that can become constants.
    """

    def __init__(self, text: str, node: str, number: int, counts: bool = False, equals: Sequence[str] = ()) -> None:
        super().__init__(text)
        self.node, self.number, self.counts, self.equals = node, number, counts, tuple(equals)


@dataclass(frozen=True)
class Variable:
    """A resource variable that a node takes.

    Attributes:
        handle: its tensor.
        dtype: tf.DType of its value.
        shape: tf.TensorShape of its value, unknown if the graph does not specify it.
    """

    handle: Any
    dtype: Any
    shape: Any

    def read(self) -> Any:
        """Returns its value."""
        value = tf.raw_ops.ReadVariableOp(resource=self.handle, dtype=self.dtype)
        value.set_shape(self.shape)
        return value

    def rows(self, indices: Any) -> Any:
        """Returns the rows of these indices [n]; XLA clamps indices that are out of range."""
        return tf.raw_ops.ResourceGather(resource=self.handle, indices=indices, dtype=self.dtype)

    def write(self, value: Any) -> Any:
        """Returns the operation that assigns a new value."""
        return tf.raw_ops.AssignVariableOp(resource=self.handle, value=value)

    def write_rows(self, indices: Any, rows: Any) -> Any:
        """Returns the operation that writes rows [n, ...]; XLA skips indices that are out of range."""
        return tf.raw_ops.ResourceScatterUpdate(resource=self.handle, indices=indices, updates=rows)


@dataclass(frozen=True)
class Site:
    """A node that is lowered.

    Attributes:
        node: the node.
        inputs: its inputs in order: tensors, a Variable for a handle.
        distinct: numbers of the inputs whose values are distinct, except for holes, which index no row.
        constants: number of an input -> its value (np.ndarray), for inputs whose value is known.
    """

    node: Node
    inputs: tuple[Any, ...]
    distinct: frozenset
    constants: Mapping[int, Any]

    def attr(self, name: str) -> Any:
        """Returns the value of an attribute: bool, int, float, bytes, tf.DType, or a tuple of these."""
        if name in self.node.attrs:
            value = self.node.attrs[name]
        else:
            value = attributes.decoded(tf_internals.default_attr(self.node.op, name))
        return tf.as_dtype(int(value)) if isinstance(value, attributes.DType) else value

    def refused(self, reason: str) -> PlanError:
        """Returns a PlanError that says why this node cannot be lowered."""
        return PlanError(self._sentence(reason))

    def not_counted(self, number: int, reason: str) -> NotConstant:
        """Returns the error of a node that needs the last value of an input plus 1, see `NotConstant.counts`."""
        return NotConstant(self._sentence(reason), self.node.name, number, counts=True)

    def _sentence(self, reason):
        return "node '%s' (%s) cannot be compiled by XLA: %s" % (self.node.name, self.node.op, reason)

    def constant(self, number: int) -> np.ndarray:
        """Returns the value of an input.

        Raises:
            NotConstant: it is not known at compile time.
        """
        if number not in self.constants:
            names = [arg.name for arg in tf_internals.op_defs()[self.node.op].input_arg]
            reason = "its input %s must be known when XLA compiles, see `constants`; or run the step in the session"
            raise NotConstant(self._sentence(reason % names[number]), self.node.name, number)
        return self.constants[number]
