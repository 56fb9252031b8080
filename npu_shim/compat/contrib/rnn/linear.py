"""What the cells share: a linear map, layer norm, and the sizes of a cell."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

RNNCell = tf.nn.rnn_cell.RNNCell
# the base of the cells that make their variables in `build`
LayerRNNCell = tf.nn.rnn_cell.BasicRNNCell.__bases__[0]
LSTMStateTuple = tf.nn.rnn_cell.LSTMStateTuple


class Cell(RNNCell):
    """A cell that sets `_state_size` and `_output_size`."""

    @property
    def state_size(self) -> Any:
        return self._state_size

    @property
    def output_size(self) -> Any:
        return self._output_size


class LayerCell(LayerRNNCell):
    """A cell that makes its variables in `build`; state and output are `_num_units` wide unless it says otherwise."""

    @property
    def state_size(self) -> Any:
        return self._num_units

    @property
    def output_size(self) -> Any:
        return self._num_units


def linear(
    args: Any, output_size: int, bias: bool = True, bias_initializer: Any = None, kernel_initializer: Any = None
) -> tf.Tensor:
    """Maps the concatenated args: [batch, sum of depths] -> [batch, output_size].

    The variables are "kernel" and "bias" of the current scope. Inside a cell they are made in its first step.

    Args:
        args: a tensor [batch, depth] or a list of them.
        output_size: int.
        bias: bool.
        bias_initializer: zeros by default.
        kernel_initializer: the scope's by default.

    Raises:
        ValueError: there is no arg, or a depth is not known.
    """
    args = tf.nest.flatten(args) if args is not None else []
    if not args:
        raise ValueError("`args` must be specified")
    depths = [a.shape.with_rank(2).as_list()[1] for a in args]
    if None in depths:
        raise ValueError("linear expects shape[1] to be provided for shapes %s" % [a.shape for a in args])
    kernel = tf.get_variable("kernel", [sum(depths), output_size], args[0].dtype, kernel_initializer)
    product = tf.matmul(args[0] if len(args) == 1 else tf.concat(args, 1), kernel)
    if not bias:
        return product
    start = bias_initializer if bias_initializer is not None else tf.zeros_initializer()
    return tf.nn.bias_add(product, tf.get_variable("bias", [output_size], args[0].dtype, start))


class Linear:
    """`linear` as an object, like core_rnn_cell._Linear, from which scripts make it."""

    def __init__(
        self, args: Any, output_size: int, build_bias: Any, bias_initializer: Any = None, kernel_initializer: Any = None
    ) -> None:
        self._arguments = (output_size, build_bias, bias_initializer, kernel_initializer)
        args = args if isinstance(args, (list, tuple)) else [args]
        linear(args, *self._arguments)
        self._scope = tf.get_variable_scope()

    def __call__(self, args: Any) -> tf.Tensor:
        """Returns [batch, output_size], with the variables of the scope it was made in."""
        with tf.variable_scope(self._scope, reuse=True):
            return linear(args, *self._arguments)


def layer_norm(x: Any, scope: Any, gain: float = 1.0, shift: float = 0.0) -> tf.Tensor:
    """Normalizes [batch, depth] over the depth, with variables "gamma" and "beta" of a scope."""
    depth = x.shape[-1:]
    with tf.variable_scope(scope):
        gamma = tf.get_variable("gamma", depth, x.dtype, tf.constant_initializer(gain))
        beta = tf.get_variable("beta", depth, x.dtype, tf.constant_initializer(shift))
    mean, variance = tf.nn.moments(x, [1], keep_dims=True)
    return tf.nn.batch_normalization(x, mean, variance, beta, gamma, 1e-3 if x.dtype == tf.float16 else 1e-12)


def sharded(name: str, shape: Any, dtype: Any, shards: int) -> tf.Tensor:
    """A matrix of a shape in `shards` variables, split by rows: "NAME_0", "NAME_1" and so on."""
    sizes = [shape[0] // shards + (index < shape[0] % shards) for index in range(shards)]
    parts = [tf.get_variable("%s_%d" % (name, i), [rows, shape[1]], dtype) for i, rows in enumerate(sizes)]
    return parts[0] if shards == 1 else tf.concat(parts, 0)


def input_depth(shape: Any) -> int:
    """The depth of inputs [batch, depth]; ValueError when it is not known."""
    depth = tf.TensorShape(shape).as_list()[-1]
    if depth is None:
        raise ValueError("Expected inputs.shape[-1] to be known, saw shape: %s" % shape)
    return depth
