"""Float32 storage for variables that a TensorFlow 1 model asks for in float16 or bfloat16.

The model keeps computing in the dtype it asked for, but its variables are stored, trained, averaged, regularized and
saved in float32. A getter returns the cast: an ordinary Tensor with `assign` and similar methods added, or for a
statistic a View that is used like one. `master_of` returns its variable.

Sources: the getter of NVIDIA's mixed-precision guide (same name and call), TensorFlow 1.15.5 and 2.15.1.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
from typing import Any, Callable, Iterator

import numpy as np
import tensorflow.compat.v1 as tf

from npu_shim.checkpoint.master_casts import View, assignable
from npu_shim.rewriter import tf_internals
from npu_shim.rewriter.errors import ConfigError, nearest

LOW = (tf.float16, tf.bfloat16)
STATE = "_npu_shim_masters"


@dataclasses.dataclass(frozen=True)
class Interception:
    """A variable that was requested in float16 or bfloat16, and how it is stored.

    Attributes:
        name: str, the variable's name in the graph and in checkpoints.
        requested: str, the dtype that the model asked for.
        stored: str, the dtype that the graph stores.
        trainable: bool.
        reason: str, one of REASONS.
    """

    name: str
    requested: str
    stored: str
    trainable: bool
    reason: str


REASONS = (
    "stored as float32",
    "not trainable, kept as requested (keep_float32_statistics=False)",
    "made outside of the getter and of the master_weights scope",
)


class _Masters:
    """The casts of one graph; an attribute of the graph, so that both are freed together."""

    def __init__(self):
        self.casts = {}  # (variable name, dtype name, place) -> Tensor
        self.masters = {}  # name of a cast -> variable
        self.requests = {}  # variable name -> Interception


def float32_variable_storage_getter(
    getter: Any,
    name: str,
    shape: Any = None,
    dtype: Any = None,
    initializer: Any = None,
    regularizer: Any = None,
    trainable: bool = True,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Custom getter that stores float16 and bfloat16 variables as float32 and returns their cast.

    Use: `tf.variable_scope(scope, custom_getter=float32_variable_storage_getter)`. Requests of every other dtype reach
    `getter` unchanged. Initializers, regularizers, constraints and slots see the float32 variable.

    Returns:
        A Tensor of the requested dtype with the variable's shape: one cast for each variable, dtype and control-flow
        context. The cast of a trainable variable stands outside loops, so a loop that trains its own weights must read
        `master_of(tensor)` instead. For a variable that is not trainable it is a View, which is taken wherever a Tensor
        is and reads anew at every use. `assign`, `assign_add`, `scatter_update`, `load` and their relatives write the
        variable. `ExponentialMovingAverage.average` of it is the master's; give `apply` the master, `master_of(it)`.

    Raises:
        ConfigError: when executing eagerly, where a cast would freeze the value.
    """
    return _get(True, getter, name, shape, dtype, initializer, regularizer, trainable, *args, **kwargs)


def get_custom_getter(compute_dtype: Any, keep_float32_statistics: bool = True) -> Callable[..., Any] | None:
    """Returns the getter for a model that computes in `compute_dtype`: None unless that is float16 or bfloat16.

    Args:
        compute_dtype: what `tf.as_dtype` takes.
        keep_float32_statistics: bool; False leaves non-trainable variables in the dtype they are asked for, as the
            published getter does, which loses small updates of moving averages.
    """
    if tf.as_dtype(compute_dtype) not in LOW:
        return None
    return float32_variable_storage_getter if keep_float32_statistics else functools.partial(_get, False)


@contextlib.contextmanager
def master_weights(compute_dtype: Any = tf.float16, keep_float32_statistics: bool = True) -> Iterator[None]:
    """Scope in which `tf.get_variable`, `tf.layers`, `tf.Variable` and Keras layers store float32 masters.

    In it every float16 or bfloat16 variable of the default graph is float32 and the model gets its cast. It composes
    with a custom getter that is already set. With any other `compute_dtype` it does nothing, so that a script can
    switch by one argument. Keras optimizers need variables and must not be given the casts; `tf.train` optimizers find
    the masters in `tf.trainable_variables()`.
    """
    getter = get_custom_getter(compute_dtype, keep_float32_statistics)
    if getter is None:
        yield
        return
    scope = tf.get_variable_scope()
    outer = scope.custom_getter
    # Setting it on the open scope, since entering the scope again would restart the counters of default layer names.
    scope.set_custom_getter(getter if outer is None else _inside(getter, outer))
    try:
        with tf.variable_creator_scope(functools.partial(_create, keep_float32_statistics)):
            yield
    finally:
        scope.set_custom_getter(outer)


def master_of(tensor: Any) -> Any:
    """Returns the float32 variable behind a cast that a getter made; a variable is its own master.

    Raises:
        ConfigError: `tensor` is not such a cast.
    """
    if isinstance(tensor, View):
        return tensor._master
    if not isinstance(tensor, tf.Tensor):
        if hasattr(tensor, "read_value") or hasattr(tensor, "as_tensor"):
            return tensor
        raise ConfigError("master_of expects a Tensor that a float32 getter returned, got %r" % (tensor,))
    masters = getattr(tensor.graph, STATE, _Masters()).masters
    if tensor.name not in masters:
        raise ConfigError(
            "'%s' is not the cast of a float32 master weight%s" % (tensor.name, nearest(tensor.name, masters))
        )
    return masters[tensor.name]


def embedding_lookup(params: Any, ids: Any, name: str | None = None, **kwargs: Any) -> tf.Tensor:
    """Looks up rows of a float32 table and casts the rows, where casting first would convert the whole table.

    Args:
        params: the cast or the variable, shape [rows, ...]; partitioned along axis 0 it is looked up part by part.
        ids: int Tensor of any shape, 0 <= id < rows.
        name: str.
        **kwargs: for `tf.nn.embedding_lookup`.

    Returns:
        Tensor of `params`' dtype, shape ids.shape + params.shape[1:]. Its gradient is sparse and float32.
    """
    table = master_of(params)
    if hasattr(table, "as_tensor"):
        if list(tf_internals.partitions(table))[1:] and max(tf_internals.partitions(table)[1:]) > 1:
            table = table.as_tensor()
        else:
            kwargs.setdefault("partition_strategy", "div")  # how partitioners divide rows; the default "mod" permutes
    rows = tf.nn.embedding_lookup(table, ids, **kwargs)
    return tf.cast(rows, params.dtype.base_dtype, name=name)


def master_weights_report(graph: tf.Graph | None = None) -> tuple[Interception, ...]:
    """Returns what was intercepted in `graph` (default: the default graph) and what was not.

    Returns:
        tuple of Interception, sorted by name: every variable asked for in float16 or bfloat16.
    """
    graph = graph or tf.get_default_graph()
    requests = dict(getattr(graph, STATE, _Masters()).requests)
    with graph.as_default():
        trainable = {v.op.name for v in tf.trainable_variables()}
        for variable in tf.global_variables() + tf.local_variables():
            dtype = variable.dtype.base_dtype
            if dtype in LOW and variable.op.name not in requests:
                name = variable.op.name
                requests[name] = Interception(name, dtype.name, dtype.name, name in trainable, REASONS[2])
    return tuple(requests[name] for name in sorted(requests))


def _inside(own, outer):
    """Returns the getter that applies the getter `own` around the getter `outer`."""

    def both(getter, *args, **kwargs):  # TensorFlow passes it by this name
        return own(functools.partial(outer, getter), *args, **kwargs)

    return both


def _get(
    keep_float32_statistics, getter, name, shape=None, dtype=None, initializer=None, regularizer=None, trainable=True,
    *args, **kwargs
):
    requested = _requested(dtype, initializer)
    shaped = shape is not None and tf.TensorShape(shape).is_fully_defined()
    value = None if requested in LOW or shaped or not (trainable or keep_float32_statistics) else _value_of(initializer)
    initializer = value or initializer

    def ask(dtype, initializer):
        return getter(
            name, shape, *args, dtype=dtype, initializer=initializer, regularizer=regularizer, trainable=trainable,
            **kwargs
        )

    if requested not in LOW:
        variable = ask(dtype, initializer)
        requested = value and (value.dtype or _requested_before(variable))
        return _cast_of(variable, requested, trainable, kwargs.get("caching_device")) if requested in LOW else variable
    if not trainable and not keep_float32_statistics:
        kept = ask(dtype, initializer)
        _record(kept, requested, trainable, REASONS[1])
        return kept
    master = ask(tf.float32, _float32_initializer(initializer))
    if isinstance(master, tf.Tensor):  # an inner getter has cast it already
        return master if master.dtype.base_dtype == requested else tf.cast(master, requested)
    return _cast_of(master, requested, trainable, kwargs.get("caching_device"))


def _create(keep_float32_statistics, next_creator, **kwargs):
    """Variable creator: does the same as `_get`, for variables that are created without a getter."""
    value = kwargs.get("initial_value")
    requested = _requested(kwargs.get("dtype"), value)
    trainable = kwargs.get("trainable") is not False
    if requested not in LOW:
        told = requested is not None or not (trainable or keep_float32_statistics)
        value = None if told else _value_of(value)
        variable = next_creator(**(dict(kwargs, initial_value=value) if value else kwargs))
        low = value is not None and value.dtype in LOW
        return _cast_of(variable, value.dtype, trainable, kwargs.get("caching_device")) if low else variable
    if not trainable and not keep_float32_statistics:
        kept = next_creator(**kwargs)
        _record(kept, requested, trainable, REASONS[1])
        return kept
    initial = (lambda: tf.cast(value(), tf.float32)) if callable(value) else _float32_initializer(value)
    master = next_creator(**dict(kwargs, dtype=tf.float32, initial_value=initial))
    return _cast_of(master, requested, trainable, kwargs.get("caching_device"))


def _requested(dtype, initializer):
    """Returns the dtype that the model expects back: a low-precision value decides it, as in TensorFlow."""
    value_dtype = getattr(initializer, "dtype", None)
    if value_dtype is not None and not callable(initializer) and tf.as_dtype(value_dtype).base_dtype in LOW:
        return tf.as_dtype(value_dtype).base_dtype
    return None if dtype is None else tf.as_dtype(dtype).base_dtype


def _float32_initializer(initializer):
    """Returns the initializer of the master: values are converted, since a value decides the variable's dtype."""
    if initializer is None:
        return None
    if callable(initializer):
        if inspect.isclass(initializer) or not _takes_nothing(initializer):
            return initializer
        return lambda: tf.cast(initializer(), tf.float32)
    if isinstance(initializer, tf.Tensor) or hasattr(initializer, "read_value"):
        return tf.cast(initializer, tf.float32)
    return np.asarray(initializer).astype(np.float32)


def _value_of(initializer):
    """Returns a function that makes the same initial value, which decides the variable's dtype: float32 for a low one.

    Its `dtype` is the low dtype that the value had, or None. None for what is no function without arguments.
    """
    if not _takes_nothing(initializer):
        return None

    def value():  # a plain function: TensorFlow 1.15 counts the arguments of no other callable
        tensor = tf.convert_to_tensor(initializer())
        if tensor.dtype not in LOW:
            return tensor
        value.dtype = tensor.dtype
        return tf.cast(tensor, tf.float32)

    value.dtype = None
    return value


def _requested_before(variable):
    """The low dtype in which a variable was asked for when it was made; None for another one."""
    request = _state(tf.get_default_graph()).requests.get(getattr(variable, "name", "").split(":")[0])
    return request and tf.as_dtype(request.requested)


def _takes_nothing(function):
    if not callable(function) or inspect.isclass(function):
        return False
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    return all(p.default is not p.empty or p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters) and not any(
        p.name == "shape" for p in parameters
    )


def _cast_of(master, dtype, trainable, caching_device):
    """Returns the one cast of `master` to `dtype` for the current control-flow context."""
    if tf.executing_eagerly():
        raise ConfigError("float32 master weights need a graph; '%s' is created eagerly" % master.name)
    place = tf_internals.control_flow_place(tf.get_default_graph())
    if trainable and place.repeated:
        # A weight's cast is made once a step: outside, the loop receives it as an invariant.
        with tf.init_scope():
            if not tf.executing_eagerly():
                return _cast_here(master, dtype, trainable, caching_device)
    return _cast_here(master, dtype, trainable, caching_device)


def _cast_here(master, dtype, trainable, caching_device):
    graph = tf.get_default_graph()
    state = _state(graph)
    name = _name(master)
    key = (name, dtype.name, tf_internals.control_flow_place(graph))
    if key not in state.casts:
        # The name is absolute: it says which variable is cast, not where it was asked for.
        with tf.name_scope(None), tf.device(caching_device):
            whole = master.as_tensor() if hasattr(master, "as_tensor") else master
            cast = tf.cast(whole, dtype, name="%s/%s_cast" % (name, dtype.name))
        if not trainable:  # a View reads its variable at every use, so that a value that is fed would reach nobody
            graph.prevent_feeding(cast)
        state.casts[key] = assignable(cast if trainable else View(master, cast), master, trainable)
        state.masters[cast.name] = master
        _record(master, dtype, trainable, REASONS[0])
    return state.casts[key]


def _record(variable, requested, trainable, reason):
    name = _name(variable)
    stored = variable.dtype.base_dtype.name
    graph = tf.get_default_graph()
    while getattr(graph, "outer_graph", None) is not None and hasattr(graph.outer_graph, "as_graph_def"):
        graph = graph.outer_graph  # a function's request belongs to the report of the graph around it
    _state(graph).requests[name] = Interception(name, requested.name, stored, bool(trainable), reason)


def _name(variable):
    return variable.name.split(":")[0]


def _state(graph):
    if not hasattr(graph, STATE):
        setattr(graph, STATE, _Masters())
    return getattr(graph, STATE)
