"""The value that a float32 getter returns in place of its variable: a Tensor for a weight, a View for a statistic."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

WRITES = ("assign", "assign_add", "assign_sub")
SCATTERS = ("scatter_update", "scatter_add", "scatter_sub")


def assignable(cast: Any, master: Any, trainable: bool) -> Any:
    """Adds a variable's methods to `cast`, a Tensor or a View; they convert values to the master's float32."""
    cast.trainable = trainable
    for name in WRITES:
        setattr(cast, name, _writer(getattr(master, name), cast.dtype))
    for name in SCATTERS:
        if hasattr(master, name):
            setattr(cast, name, _scatterer(getattr(master, name), cast.dtype))
    if hasattr(master, "load"):
        cast.load = lambda value, session=None: master.load(np.asarray(value).astype(np.float32), session)
    if hasattr(master, "initializer"):
        cast.initializer = master.initializer
        cast.initialized_value = lambda: tf.cast(_initialized_value(master), cast.dtype)
        cast.is_initialized = lambda name=None: tf.is_variable_initialized(master)
    for name in ("ref", "experimental_ref"):
        if hasattr(master, name):
            setattr(cast, name, _reference(getattr(master, name), master, cast))
    return cast


def _reference(own, master, cast):
    """Returns the `ref` of a cast: a key that is found as `own`, the master's, and that stands for the cast.

    By the former an ExponentialMovingAverage finds the master's average, by the latter a session what it is fed.
    """

    def ref():
        return type("Reference", (type(own()),), {"deref": lambda self: cast})(master)

    return ref


def _initialized_value(master):
    # a resource variable's own method raises
    return tf.cond(tf.is_variable_initialized(master), master.read_value, lambda: tf.identity(master.initial_value))


class View:
    """A statistic in low precision over its float32 variable: every use reads it again, after its control inputs.

    For a weight a single Tensor is enough, since only the training step writes it. A statistic is written within a
    step, and ops ordered after the write must see the new value.

    Args:
        master: the float32 variable.
        cast: Tensor, the cast that is fetched by name and gives dtype, shape and graph.
    """

    def __init__(self, master: Any, cast: Any) -> None:
        self._master, self._cast = master, cast

    def value(self) -> Any:
        """Returns the value now: Tensor of the low dtype."""
        read = _read(self._master)
        # TensorFlow's graph optimizers move the cast before the read of a reference and lose the read's control inputs.
        # So the cast gets one too: a node of its own, since tf.cast drops control inputs that its input has.
        with tf.control_dependencies([tf.no_op()]):
            return tf.cast(read, self.dtype)

    read_value = value

    def _as_graph_element(self):
        return self._cast

    def __tf_tensor__(self, dtype=None, name=None):
        return _to_tensor(self, dtype, name)

    def __getattr__(self, name):
        # protocols of Python and TensorFlow are not delegated; the other two are missing while a copy is being made
        if name.startswith("__") or name in ("_cast", "_master"):
            raise AttributeError(name)
        return getattr(self._cast, name)

    def __iter__(self):
        return iter(self.value())

    def __repr__(self):
        return "<npu_shim view of %r as %s>" % (self._master, self.dtype.name)


def _read(master):
    return master.as_tensor() if hasattr(master, "as_tensor") else master.read_value()


def _to_tensor(view, dtype=None, name=None, as_ref=False):
    del as_ref
    if dtype is not None and not tf.as_dtype(dtype).is_compatible_with(view.dtype):
        # an average of the statistic is taken in float32, of what is stored
        return tf.identity(_read(view._master), name=name) if dtype == tf.float32 else NotImplemented
    value = view.value()
    return value if name is None else tf.identity(value, name=name)


def _operator(name):
    def apply(self, *args, **kwargs):
        return getattr(tf.Tensor, name)(self.value(), *args, **kwargs)

    return apply


for _name in tf.Tensor.OVERLOADABLE_OPERATORS - {"__eq__", "__ne__"}:
    setattr(View, _name, _operator(_name))
tf.register_tensor_conversion_function(View, _to_tensor)


def _writer(write, dtype):
    def assign(value, *args, **kwargs):
        return _low(write(tf.cast(value, tf.float32), *args, **kwargs), dtype)

    return assign


def _scatterer(write, dtype):
    def scatter(sparse_delta, *args, **kwargs):
        values = tf.cast(sparse_delta.values, tf.float32)
        delta = tf.IndexedSlices(values, sparse_delta.indices, sparse_delta.dense_shape)
        return _low(write(delta, *args, **kwargs), dtype)

    return scatter


def _low(written, dtype):
    """Returns what an assignment returns, an op or the value after it, in the low dtype."""
    return written if written is None or isinstance(written, tf.Operation) else tf.cast(written, dtype)
