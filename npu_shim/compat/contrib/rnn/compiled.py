"""A cell whose step XLA compiles (behaviour of tf.contrib.rnn's in TensorFlow 1.15.5)."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.compat.contrib.rnn.wrappers import Wrapper
from npu_shim.rewriter import tf_internals


class CompiledWrapper(Wrapper):
    """Runs a cell in tf.xla.experimental.jit_scope.

    Args:
        cell: an RNNCell.
        compile_stateful: whether operations with a state are compiled, too: initializers, random numbers.
    """

    def __init__(self, cell: Any, compile_stateful: bool = False) -> None:
        super().__init__(cell)
        self._compile_stateful = compile_stateful

    def __call__(self, inputs: Any, state: Any, scope: Any = None) -> tuple[Any, Any]:
        """Returns (output, next state) of the cell."""
        with tf.xla.experimental.jit_scope(compile_ops=self._compile_stateful or _stateless):
            return self._cell(inputs, state, scope)


def _stateless(node_def: Any) -> bool:
    op = tf_internals.op_defs().get(node_def.op)
    return op is not None and not op.is_stateful
