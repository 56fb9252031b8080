"""Where tf.train.replica_device_setter puts variables: tf.contrib.training's strategies (behaviour of 1.15.5)."""

from __future__ import annotations

import hashlib
from typing import Any, Callable

import tensorflow.compat.v1 as tf


class RandomStrategy:
    """A task by the hash of the operation's name.

    Args:
        num_ps_tasks: int, the number of tasks.
        seed: int, part of what is hashed.
    """

    def __init__(self, num_ps_tasks: int, seed: int = 0) -> None:
        self._num_tasks = num_ps_tasks
        self._seed = seed

    def __call__(self, op: Any) -> int:
        """The task of an operation."""
        name = "%s_%d" % (op.name, self._seed)
        return int(hashlib.md5(name.encode("utf-8")).hexdigest(), 16) % self._num_tasks


class GreedyLoadBalancingStrategy:
    """The task that has the smallest load so far.

    Args:
        num_tasks: int, the number of tasks.
        load_fn: function of an operation that gives its load, a number.
    """

    def __init__(self, num_tasks: int, load_fn: Callable[[Any], float]) -> None:
        self._loads = [0.0] * num_tasks
        self._load_fn = load_fn

    def __call__(self, op: Any) -> int:
        """The task of an operation, whose load it has from now on."""
        task = self._loads.index(min(self._loads))
        self._loads[task] += self._load_fn(op)
        return task


def byte_size_load_fn(op: Any) -> int:
    """The bytes of what a variable's operation holds.

    Raises:
        ValueError: it has another number of outputs than one, or its shape is not known.
    """
    if len(op.outputs) != 1:
        raise ValueError("Op %s must have a single output, got %d" % (op.name, len(op.outputs)))
    # of a variable's operation: while it is made, its output has no shape yet, and a handle never has one
    is_variable = op.type in ("Variable", "VariableV2", "VarHandleOp")
    dtype = tf.as_dtype(op.get_attr("dtype")) if is_variable else op.outputs[0].dtype.base_dtype
    shape = tf.TensorShape(op.get_attr("shape")) if is_variable else op.outputs[0].shape
    shape.assert_is_fully_defined()
    return dtype.size * shape.num_elements()
