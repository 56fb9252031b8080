"""What a call of tf.gradients made: the factor that its losses were multiplied by, and the gradients."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Sequence

import tensorflow.compat.v1 as tf

from npu_shim.loss_scale.managers.graph_ops import outer_graph
from npu_shim.loss_scale.optimizers.gradients import times
from npu_shim.options.ops.scopes import keep_dtype_scope as keep_dtype

SCOPE = "npu_shim_loss_scale/"  # of all ops made here: the script's own keep the names that they have without them


@dataclasses.dataclass(frozen=True, eq=False)
class Call:
    """A call of tf.gradients, or of a GradientTape in a graph.

    Attributes:
        factor: the Identity op that every loss is multiplied by and every gradient divided by; of a constant 1, until
            it is given a scale. It is in the outermost graph.
        losses: tuple of tensors.
        starts: tuple of their incoming gradients, None where the script gave none.
        results: tuple of tensors, the gradients that the script was given; of IndexedSlices the values.
    """

    factor: Any
    losses: tuple[Any, ...]
    starts: tuple[Any, ...]
    results: tuple[Any, ...]


class Registry:
    """What is known of one graph.

    Attributes:
        calls: list of Call, in the order in which they were made.
        scales: dict of Call to the manager of its scale; a Call that is not there has the factor 1.
        left: set of the Calls of scripts that scale by themselves.
        managers: list of the managers, each with its counters.
        said: set of the lines that were logged about the graph.
        looked_at: int, the version of the graph that was last searched for updates by hand.
    """

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.scales: dict[Call, Any] = {}
        self.left: set[Call] = set()
        self.managers: list[Any] = []
        self.said: set[str] = set()
        self.looked_at = -1
        self._call_of: dict[str, Call] = {}

    def add(self, call: Call) -> None:
        """Adds a call."""
        self.calls.append(call)
        self._call_of.update((tensor.name, call) for tensor in call.results)

    def call_of(self, tensor: Any) -> Call | None:
        """Returns the call that made a tensor of this graph, or None."""
        return self._call_of.get(tensor.name)


def registry_of(graph: tf.Graph) -> Registry:
    """Returns what is known of a graph."""
    known = getattr(graph, "_npu_shim_gradients", None)
    if known is None:
        known = graph._npu_shim_gradients = Registry()
    return known


def can_scale(ys: Sequence[Any], xs: Sequence[Any]) -> bool:
    """Whether gradients can be scaled here: in a graph, of tensors, with respect to tensors or variables."""
    if outer_graph() is None or tf.distribute.has_strategy():
        return False
    return all(_is_plain(value) for value in (*ys, *xs)) and any(_is_float(y) for y in ys)


def gradients(ys: Sequence[Any], starts: Sequence[Any] | None, compute: Callable[[list[Any]], Sequence[Any]]) -> Any:
    """Returns unscaled gradients that were computed through a factor, and remembers them.

    Args:
        ys: tensors or variables of any float dtype and shape.
        starts: their incoming gradients, or None; each may be None.
        compute: function from a list of incoming gradients, one for each of ys, to the gradients: list of Tensor,
            IndexedSlices or None.

    Returns:
        list of what `compute` returns, unscaled.
    """
    given = [None] * len(ys) if starts is None else list(starts)
    factor = _new_factor()
    with keep_dtype(), tf.name_scope(SCOPE):
        scaled = [_scaled(y, start, factor) for y, start in zip(ys, given)]
    computed = compute(scaled)
    with keep_dtype(), tf.name_scope(SCOPE):
        down = tf.reciprocal(factor)
        unscaled = [g if not _is_float(g) else times(g, down) for g in computed]
    results = tuple(getattr(g, "values", g) for g in unscaled if _is_float(g))
    if results:
        call = Call(factor.op, tuple(map(tf.convert_to_tensor, ys)), tuple(given), results)
        registry_of(results[0].graph).add(call)
    return unscaled


def _new_factor():
    """Returns a float32 scalar of the outermost graph: 1, through an op whose input can be replaced."""
    with tf.init_scope(), keep_dtype(), tf.name_scope(SCOPE):
        return tf.identity(tf.constant(1.0), name="factor")


def _scaled(y, start, factor):
    """Returns the incoming gradient of a loss, multiplied by the factor; None where TensorFlow is to refuse it."""
    if start is not None:
        return times(start if isinstance(start, tf.IndexedSlices) else tf.convert_to_tensor(start), factor)
    if not _is_float(y):
        return None
    dtype = y.dtype.base_dtype
    return tf.fill(tf.shape(tf.convert_to_tensor(y)), tf.cast(factor, dtype))


def _is_plain(value):
    is_dense = (tf.is_tensor(value) or isinstance(value, tf.Variable)) and not isinstance(value, tf.SparseTensor)
    return is_dense and getattr(value, "dtype", tf.variant) != tf.variant


def _is_float(value):
    dtype = getattr(value, "dtype", None)
    return dtype is not None and (dtype.is_floating or dtype.is_complex)
