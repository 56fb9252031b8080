"""The fetches and feeds of one Session.run, by name."""

from dataclasses import dataclass
from typing import Any, Dict, Tuple

import numpy as np
import tensorflow.compat.v1 as tf

from npu_shim.pjrt import arrays
from npu_shim.rewriter import tf_internals

# fields of RunOptions for the session's parts of a step; one with others is the session's as a whole
OF_PARTS = ("inter_op_thread_pool", "report_tensor_allocations_upon_oom", "experimental")


@dataclass(frozen=True)
class Request:
    """One run's fetches and feeds.

    Attributes:
        handler: TensorFlow's own fetch handler, which arranges the results as the caller's fetches.
        tensors: names of the fetched tensors, in the handler's order.
        targets: names of the operations that are run.
        feeds: tensor name -> np.ndarray, or `arrays.Uncast` of a large one, which is not fetched.
    """

    handler: Any
    tensors: Tuple[str, ...]
    targets: Tuple[str, ...]
    feeds: Dict[str, Any]

    @property
    def key(self):
        """Identifies a kind of run: its fetches, targets and the names of its feeds."""
        return self.tensors, self.targets, tuple(sorted(self.feeds))

    @property
    def nodes(self):
        """Names of the nodes that are fetched or run; a fetched tensor that is fed needs none."""
        return [name.partition(":")[0] for name in self.tensors if name not in self.feeds] + list(self.targets)

    @property
    def text(self):
        """The run in a few words."""
        names = ["'%s'" % name for name in (*self.targets, *self.tensors)]
        return "the run of %s%s" % (", ".join(names[:3]), ", ..." if len(names) > 3 else "")


def given(session, run, fetches, values, *others):
    """Runs a session, and returns what the fetches give; those of which the values are there, as they came.

    TensorFlow makes an array of what is fed and fetched: of a number or string too, which is not what a run gives.

    Args:
        session: tf.Session.
        run: function of the fetches and `others`.
        fetches: as of Session.run.
        values: tensor name -> value, as a run gave it.
        others: further arguments.
    """
    handler = tf_internals.fetch_handler(session.graph, fetches)
    names = [tensor.name for tensor in handler.fetches()]
    asked = [name for name in names if name not in values]
    got = {**dict(zip(asked, run([asked, list(handler.targets())], *others)[0])), **values}
    return handler.build_results(session, [got[name] for name in names])


def of(graph, fetches, feed_dict):
    """Returns the Request of a run, or None for one that only TensorFlow can read or that it will reject."""
    try:
        handler = tf_internals.fetch_handler(graph, fetches)
        tensors = tuple(tensor.name for tensor in handler.fetches())
        feeds = {}
        for tensor, value in tf_internals.fed_tensors(graph, feed_dict):
            array = _array(tensor, value)
            feeds[tensor.name] = np.asarray(array) if tensor.name in tensors else array
    except (TypeError, ValueError, KeyError, StopIteration):
        return None
    return Request(handler, tensors, tuple(operation.name for operation in handler.targets()), feeds)


def asked(graph, fetches, request=None):
    """(Names of the nodes that a run fetches or runs, of these the operations); none where TensorFlow refuses it.

    Args:
        graph: the session's.
        fetches: as in Session.run.
        request: its Request, None where there is none.
    """
    if request is not None:
        return request.nodes, request.targets
    try:
        handler = tf_internals.fetch_handler(graph, fetches)
    except (TypeError, ValueError, KeyError):
        return (), ()
    targets = [operation.name for operation in handler.targets()]
    return [*(tensor.op.name for tensor in handler.fetches()), *targets], targets


def _array(tensor, value):
    """Converts a fed value as Session.run does; raises an error where Session.run would, and for tensor handles."""
    if isinstance(value, tf.Tensor) or type(value).__name__ == "TensorHandle":
        raise TypeError(tensor.name)
    array = _as_dtype(value, tensor.dtype.as_numpy_dtype)
    if isinstance(value, int) and array != value:
        raise TypeError(tensor.name)
    if not tensor.graph.is_feedable(tensor) or not tensor.shape.is_compatible_with(array.shape):
        raise ValueError(tensor.name)
    return array


def _as_dtype(value, dtype):
    """The same as np.asarray; a large array of another dtype is cast on its way to its place."""
    is_large = isinstance(value, np.ndarray) and value.size * np.dtype(dtype).itemsize >= arrays.PART
    if is_large and value.dtype != dtype and {value.dtype.kind, np.dtype(dtype).kind} <= set("biuf"):
        return arrays.Uncast(np.asarray(value), dtype)
    return np.asarray(value, dtype=dtype)


def for_parts(options):
    """The RunOptions of the session's parts of a step."""
    copy = tf.RunOptions()
    if isinstance(options, tf.RunOptions):
        for field, value in options.ListFields():
            if field.name in OF_PARTS and field.message_type is None:
                setattr(copy, field.name, value)
            elif field.name in OF_PARTS:
                getattr(copy, field.name).CopyFrom(value)
    return copy


def is_for_session(options):
    """Whether RunOptions ask for what steps on the device do not have: a time limit, a trace, partition graphs."""
    if not isinstance(options, tf.RunOptions):
        return options is not None
    others = [(field, value) for field, value in options.ListFields() if field.name not in OF_PARTS]
    return any(field.message_type is None or value.ByteSize() for field, value in others)
