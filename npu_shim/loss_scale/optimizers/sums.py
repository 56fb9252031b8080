"""What AccumulatingOptimizer keeps between steps: sums of gradients, and the rows that sparse ones touched.

Sums of narrower gradients are float32: beyond 2,048 a float16 sum of ones no longer grows, and beyond 65,504 it is
infinity. An optimizer that gets a sparse gradient leaves the other rows alone, so the touched rows are remembered.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Union

import tensorflow.compat.v1 as tf

from npu_shim.loss_scale.optimizers.gradients import NARROW
from npu_shim.options.ops.scopes import keep_dtype_scope as keep_dtype


@dataclasses.dataclass(frozen=True)
class DenseSum:
    """The sum of dense gradients.

    Attributes:
        total: resource variable, shape of the gradients, float32 or wider.
        dtype: DType of the gradients.
    """

    total: tf.Variable
    dtype: tf.DType

    @property
    def variables(self) -> tuple[tf.Variable, ...]:
        """The variables of the sum."""
        return (self.total,)

    def add(self, gradient: Any) -> tf.Operation:
        """Returns the op that adds a gradient: a dense tensor."""
        return self.total.assign_add(_as(gradient, self.total.dtype), read_value=False)

    def over(self, steps: int) -> tf.Tensor:
        """Returns the sum divided by `steps`, in the gradients' dtype."""
        return _divided(self.total.read_value(), steps, self.dtype)

    def clear(self) -> list[tf.Operation]:
        """Returns the ops that make the sum zero."""
        return [self.total.assign(tf.zeros_like(self.total), read_value=False)]


@dataclasses.dataclass(frozen=True)
class SparseSum:
    """The sum of sparse gradients, and which rows they touched.

    Attributes:
        total: resource variable, shape of the variable that is trained, float32 or wider; untouched rows are zero.
        touched: bool resource variable [rows].
        dtype: DType of the gradients' values.
        index_dtype: DType of the gradients' indices.
    """

    total: tf.Variable
    touched: tf.Variable
    dtype: tf.DType
    index_dtype: tf.DType

    @property
    def variables(self) -> tuple[tf.Variable, ...]:
        """The variables of the sum."""
        return self.total, self.touched

    def add(self, gradient: tf.IndexedSlices) -> tf.Operation:
        """Returns the op that adds a gradient; values of equal indices add up."""
        values, rows = _as(gradient.values, self.total.dtype), gradient.indices
        marks = tf.ones_like(rows, tf.bool)
        return tf.group(
            tf.raw_ops.ResourceScatterAdd(resource=self.total.handle, indices=rows, updates=values),
            tf.raw_ops.ResourceScatterUpdate(resource=self.touched.handle, indices=rows, updates=marks),
        )

    def over(self, steps: int) -> tf.IndexedSlices:
        """Returns the touched rows divided by `steps`, each once, in the gradients' dtype."""
        rows = self._rows()
        total = tf.raw_ops.ResourceGather(resource=self.total.handle, indices=rows, dtype=self.total.dtype)
        shape = tf.raw_ops.VariableShape(input=self.total.handle)
        return tf.IndexedSlices(_divided(total, steps, self.dtype), tf.cast(rows, self.index_dtype), shape)

    def clear(self) -> list[tf.Operation]:
        """Returns the ops that make the touched rows zero."""
        rows = self._rows()
        total = tf.raw_ops.ResourceGather(resource=self.total.handle, indices=rows, dtype=self.total.dtype)
        zeros = tf.raw_ops.ResourceScatterUpdate(resource=self.total.handle, indices=rows, updates=tf.zeros_like(total))
        with tf.control_dependencies([zeros]):
            return [self.touched.assign(tf.zeros_like(self.touched), read_value=False)]

    def _rows(self):
        return tf.reshape(tf.where(self.touched.read_value()), [-1])


GradientSum = Union[DenseSum, SparseSum]


def sum_for(gradient: Any, variable: Any) -> GradientSum:
    """Makes the variables in which the gradients of a variable are summed; returns them.

    Args:
        gradient: Tensor or IndexedSlices, as every later step's.
        variable: the variable that is trained; its static shape may be unknown.
    """
    dtype = variable.dtype.base_dtype
    wide = tf.float32 if dtype in NARROW else dtype
    shape = variable.shape if variable.shape.is_fully_defined() else tf.shape(variable.initial_value)
    name = variable.op.name
    if not isinstance(gradient, tf.IndexedSlices):
        return DenseSum(hidden_variable(name + "/accumulated", tf.zeros(shape, wide)), dtype)
    return SparseSum(
        hidden_variable(name + "/accumulated_rows", tf.zeros(shape, wide)),
        hidden_variable(name + "/touched_rows", tf.zeros(shape[:1], tf.bool)),
        dtype,
        gradient.indices.dtype,
    )


def hidden_variable(name: str, value: tf.Tensor) -> tf.Variable:
    """Makes a resource variable that is not trained; returns it. It is in GLOBAL_VARIABLES and so in checkpoints."""
    return tf.Variable(
        value,
        name=name,
        trainable=False,
        collections=[tf.GraphKeys.GLOBAL_VARIABLES],
        validate_shape=value.shape.is_fully_defined(),
        use_resource=True,
    )


def _as(gradient, dtype):
    with keep_dtype():
        return tf.cast(gradient, dtype)


def _divided(total, steps, dtype):
    with keep_dtype():  # the sum of a window of float16 gradients may be beyond float16
        return tf.cast(total * tf.cast(1.0 / steps, total.dtype), dtype)
