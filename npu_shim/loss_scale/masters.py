"""Float32 masters for the float16 and bfloat16 variables of an unmodified script.

The script keeps its variables. What its optimizers update is a float32 copy of each, with slots in float32, and the
variable becomes the copy's rounded value:

    master = where(cast(master) == w, master, cast(w))     the script may have written w: by a restore, a load, a clip
    with mastered([(w, master)]):                          the optimizer sees w itself, whose storage is the master
        optimizer.apply_gradients([(cast(g), w)])          constants such as .999 and 1e-8 are what they are
    w = cast(master)

So a master's own initial value matters little, and a checkpoint that lacks masters is one of float32, rounded.
Without masters a line tells of optimizers whose constants vanish in their variables' dtype.
"""

from __future__ import annotations

import functools
import inspect
import logging
from typing import Any, Iterator, Sequence

import numpy as np
import tensorflow.compat.v1 as tf

from npu_shim.loss_scale.managers.graph_ops import outer_graph
from npu_shim.loss_scale.mastered import mastered
from npu_shim.loss_scale.optimizers.inner import train_ops_replaced
from npu_shim.loss_scale.replaced import PAIRS, Replacements, is_transparent
from npu_shim.options.reports import ledger
from npu_shim.rewriter import tf_internals
from npu_shim.rewriter.errors import ConfigError

LOG = logging.getLogger("npu_shim")
LOW = (tf.float16, tf.bfloat16)
NAME = "float32_master"  # W/float32_master in the graph and in checkpoints; slots are the variable's own, W/Adam
STATE = "_npu_shim_float32_masters"  # attribute of a tf.Graph: name of a variable -> its master
TOLD = "_npu_shim_told_of_low_variables"  # attribute of a tf.Graph
VANISHES = (
    "npu_shim: %s trains variables in %s ('%s'%s), in which its %s: npu-shim run --master-weights, or "
    "npu_shim.enable(master_weights=True), gives them float32 masters"
)
NEEDS_LOW = (
    "%s updates the float32 master of '%s' (--master-weights), and stops at what takes the variable's own dtype, in a "
    "constraint or in its apply_gradients: %s"
)
STRATEGY = (
    "npu_shim: '%s' gets no float32 master (--master-weights) under a distribution strategy: it trains in 16 bits"
)
UNSHAPED = "'%s' gets no float32 master (--master-weights): its shape is %s, expected one that is known"
_replacements = Replacements()
_gives_masters = False


def install(masters: bool) -> None:
    """Watches what optimizers are given from now on; a second call changes whether 16-bit variables get masters."""
    global _gives_masters
    _gives_masters = masters
    _replacements.replace(tf_internals.python_module("ops.gradients_util"), "_GradientsHelper", _gradients)
    _replacements.watch(tf.train.Optimizer, _apply_gradients)
    _replacements.watch_keras(_apply_gradients)


def uninstall() -> None:
    """Takes `install` back; graphs that have been built stay as they are."""
    _replacements.restore()


def masters_of(graph: tf.Graph) -> dict[str, Any]:
    """Returns the masters of a graph, by the name of the variable's op."""
    masters: dict[str, Any] = _kept(graph, STATE, dict)
    return masters


def _kept(graph, name, make):
    """Returns what a graph keeps under a name, made when it is first asked for; a graph may be a proxy."""
    if not hasattr(graph, name):
        setattr(graph, name, make())
    return getattr(graph, name)


def _gradients(original):
    @functools.wraps(original)
    def gradients_helper(*arguments: Any, **options: Any) -> Any:
        _replacements.watch_keras(_apply_gradients)  # Keras is loaded by now, if the script trains with it
        return original(*arguments, **options)

    return gradients_helper


def _apply_gradients(original):
    signature = inspect.signature(original)

    @functools.wraps(original)
    def apply_gradients(self: Any, *arguments: Any, **options: Any) -> Any:
        if not (arguments or PAIRS in options) or is_transparent(self) or outer_graph() is None:
            return original(self, *arguments, **options)
        pairs = list(arguments[0] if arguments else options.pop(PAIRS))
        low = [variable for gradient, variable in pairs if gradient is not None and _is_low(variable)]
        call = signature.bind(self, pairs, *arguments[1:], **options)
        if not low:
            return original(*call.args, **call.kwargs)
        if not _gives_masters:
            _tell_of_vanishing(self, low)
            return original(*call.args, **call.kwargs)
        if tf.distribute.has_strategy():
            _tell_of_strategy(low)
            return original(*call.args, **call.kwargs)
        return _applied_to_masters(self, pairs, original, call)

    apply_gradients.__signature__ = signature  # type: ignore[attr-defined]
    return apply_gradients


def _is_low(variable: Any) -> bool:
    dtype = getattr(variable, "dtype", None)
    return dtype is not None and dtype.base_dtype in LOW


def _applied_to_masters(optimizer, pairs, original, call):
    """Calls an optimizer's own apply_gradients for the masters, and returns the op that then rounds them."""
    given, masters = [], {}
    for gradient, variable in pairs:
        if gradient is not None and _is_low(variable):
            masters[id(variable)] = variable, _master_of(optimizer, variable)
            gradient = _float32(gradient)
        given.append((gradient, variable))
    arguments = call.arguments
    arguments[PAIRS if PAIRS in arguments else list(arguments)[1]] = given
    name = None
    if "name" in call.signature.parameters:
        name = arguments.get("name") or _own_name(optimizer)
        if name is not None:
            name = name.rstrip("/")
            arguments["name"] = name + "_" + NAME
    with train_ops_replaced() as train_ops:
        with tf.control_dependencies([_synced(variable, master) for variable, master in masters.values()]):
            done = _updated(optimizer, list(masters.values()), original, call)
        with tf.control_dependencies([done]):
            written = [_written(variable, master) for variable, master in masters.values()]
        train_ops.append(tf.group(done, *written, name=name))
    return train_ops[0]


def _updated(optimizer, masters, original, call):
    with mastered(masters):
        try:
            return original(*call.args, **call.kwargs)
        except (TypeError, ValueError) as error:
            if isinstance(error, ConfigError) or not any(dtype.name in str(error) for dtype in LOW):
                raise
            names = min(variable.name for variable, _ in masters)
            raise ConfigError(NEEDS_LOW % (type(optimizer).__name__, names, error)) from error


def _own_name(optimizer):
    return optimizer.get_name() if isinstance(optimizer, tf.train.Optimizer) and hasattr(optimizer, "_name") else None


def _synced(variable, master):
    """Returns the op that takes the variable's value over where it is not the master's rounded one."""
    value, own = variable.read_value(), master.read_value()
    same = tf.equal(tf.cast(own, value.dtype), value)
    return master.assign(tf.where(same, own, tf.cast(value, tf.float32))).op


def _written(variable, master):
    """Returns the op that writes the rounded master into its variable.

    TensorFlow's graph optimizers move a cast before the read of a reference and lose the read's control inputs. So the
    cast gets one too: a node of its own, since tf.cast drops control inputs that its input has.
    """
    value = master.read_value()
    with tf.control_dependencies([tf.no_op()]):
        return variable.assign(tf.cast(value, variable.dtype.base_dtype)).op


def _float32(gradient):
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(tf.cast(gradient.values, tf.float32), gradient.indices, gradient.dense_shape)
    return tf.cast(gradient, tf.float32)


def _master_of(optimizer, variable):
    masters, name = masters_of(outer_graph()), variable.name.partition(":")[0]
    if name not in masters:
        if not variable.shape.is_fully_defined():
            raise ConfigError(UNSHAPED % (name, variable.shape))
        with tf.init_scope():
            masters[name] = _new_master(optimizer, variable, name)
        ledger.note(ledger.MASTERED)
    if "_non_slot_dict" in vars(optimizer):  # what tf.train.Optimizer.variables() returns, beside slots
        optimizer._non_slot_dict[name + "/" + NAME, outer_graph()] = masters[name]
    return masters[name]


def _new_master(optimizer, variable, name):
    if hasattr(optimizer, "add_weight"):  # Keras initializes what it knows of
        return optimizer.add_weight(
            name="%s/%s" % (name, NAME), shape=variable.shape, dtype=tf.float32, initializer="zeros", trainable=False
        )
    slots = tf_internals.python_module("training.slot_creator")
    initial = getattr(variable, "_initial_value", None)
    if tf.is_tensor(initial):  # moving averages, which an optimizer keeps, begin with it
        return slots.create_slot(variable, tf.cast(initial, tf.float32), NAME)
    return slots.create_slot_with_initializer(variable, tf.zeros_initializer(), variable.shape, tf.float32, NAME)


def _tell_of_vanishing(optimizer: Any, variables: Sequence[Any]) -> None:
    graph = outer_graph()
    told = _kept(graph, TOLD, set)
    for dtype in LOW:
        names = [variable.op.name for variable in variables if variable.dtype.base_dtype == dtype]
        lost = list(_vanishing(optimizer, dtype)) if names else []
        if lost and (type(optimizer), dtype) not in told:
            told.add((type(optimizer), dtype))
            more = " and %d more" % (len(names) - 1) if names[1:] else ""
            LOG.warning(VANISHES, type(optimizer).__name__, dtype.name, min(names), more, " and its ".join(lost))


def _tell_of_strategy(variables: Sequence[Any]) -> None:
    told = _kept(outer_graph(), TOLD, set)
    if STRATEGY not in told:
        told.add(STRATEGY)
        LOG.warning(STRATEGY, min(variable.name for variable in variables))


def _vanishing(optimizer: Any, dtype: tf.DType) -> Iterator[str]:
    """Yields the constants of an optimizer that are 0 or 1 in a dtype, and are neither."""
    known = {**vars(optimizer), **(vars(optimizer).get("_hyper") or {})}
    for name, value in sorted(known.items()):
        if isinstance(value, float) and value:
            rounded = float(np.asarray(value, np.float32).astype(dtype.as_numpy_dtype))
            if rounded == 0.0 or (rounded == 1.0 and value < 1.0):
                yield "%s of %g is %g" % (name.strip("_"), value, rounded)
