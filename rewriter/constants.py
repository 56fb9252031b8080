"""The values of constants: written in low precision, and named where float16 cannot hold them (-1e9, 1e-8)."""

import numpy as np
import tensorflow.compat.v1 as tf

from . import folding
from .dtypes import FLOAT16
from .graph_view import Port

LARGEST = 65520.0  # from here on float16 rounds to infinity
SMALLEST = 2.0**-25  # up to here float16 rounds to zero


def lowered(view, protos, cast):
    """The value of a folded cast, rounded to nearest as a Cast does it.

    Args:
        view: GraphView of the graph.
        protos: its tf.NodeDef messages, in the order of the view.
        cast: CastEdit that is folded.

    Returns:
        TensorProto of the cast's dtype.
    """
    dtype = tf.as_dtype(cast.dtype)
    with np.errstate(all="ignore"):  # infinities come out as the graph and its Cast would make them
        values = np.asarray(folding.value(view, cast.source, _reader(protos)), np.float32)
        rounded = values.astype(dtype.as_numpy_dtype)
    made = tf.make_tensor_proto(0, dtype=dtype)
    for size in values.shape:
        made.tensor_shape.dim.add(size=size)
    bits = rounded.view(np.uint16)
    if bits.size and (bits == bits.flat[0]).all():
        made.half_val[:] = [int(bits.flat[0])]
    else:
        del made.half_val[:]
        made.tensor_content = rounded.tobytes()
    return made


def lost_constants(plan, graph_def):
    """Finds constants that a plan casts to float16 although it changes them beyond rounding.

    Args:
        plan: a Plan made for `graph_def`.
        graph_def: tf.compat.v1.GraphDef.

    Returns:
        Tuple of str, one warning a constant, in the order of the casts.
    """
    warnings = []
    constant = _reader(graph_def.node)
    for cast in plan.casts:
        if cast.dtype != FLOAT16 or not cast.consumers or not _is_known(plan.view, cast):
            continue
        with np.errstate(all="ignore"):
            lost = _lost(np.asarray(folding.value(plan.view, cast.source, constant), np.float64))
        if lost:
            reader = plan.view.nodes[cast.consumers[0][0]]
            warnings.append(
                "constant '%s' has %s in float16, and '%s' (op %s) reads it; a keep_dtype_scope around that, or its op "
                "type on the black-list, keeps float32" % (cast.tensor, lost, reader.name, reader.op)
            )
    return tuple(warnings)


def _is_known(view, cast):
    return cast.folded or (isinstance(cast.source, Port) and view.nodes[cast.source.node].op == "Const")


def _reader(protos):
    """What gives the value of the Const at a position."""
    return lambda position: tf.make_ndarray(protos[position].attr["value"].tensor)


def _lost(values):
    """What float16 makes of the worst value, in words, or ""."""
    size = np.abs(values)
    big = values[np.isfinite(values) & (size >= LARGEST)]
    if big.size:
        return "%g, which becomes infinity" % big[np.argmax(np.abs(big))]
    small = values[(size > 0) & (size <= SMALLEST)]
    return "%g, which becomes zero" % small[np.argmin(np.abs(small))] if small.size else ""
