"""Constants that float16 cannot hold: -1e9 of an attention mask becomes infinity, an epsilon of 1e-8 becomes zero."""

import numpy as np
import tensorflow.compat.v1 as tf

from .dtypes import FLOAT16

LARGEST = 65520.0  # from here on float16 rounds to infinity
SMALLEST = 2.0**-25  # up to here float16 rounds to zero


def lost_constants(plan, graph_def):
    """Finds constants that a plan casts to float16 although it changes them beyond rounding.

    Args:
        plan: a Plan made for `graph_def`.
        graph_def: tf.compat.v1.GraphDef.

    Returns:
        Tuple of str, one warning a constant, in the order of the casts.
    """
    warnings = []
    for cast in plan.casts:
        position = getattr(cast.source, "node", None)
        if cast.dtype != FLOAT16 or position is None or plan.view.nodes[position].op != "Const":
            continue
        values = tf.make_ndarray(graph_def.node[position].attr["value"].tensor).astype(np.float64)
        lost = _lost(values)
        if lost and cast.consumers:
            reader = plan.view.nodes[cast.consumers[0][0]]
            warnings.append(
                "constant '%s' has %s in float16, and '%s' (op %s) reads it; a keep_dtype_scope around that, or its op "
                "type on the black-list, keeps float32" % (cast.tensor, lost, reader.name, reader.op)
            )
    return tuple(warnings)


def _lost(values):
    """What float16 makes of the worst value, in words, or ""."""
    size = np.abs(values)
    big = values[np.isfinite(values) & (size >= LARGEST)]
    if big.size:
        return "%g, which becomes infinity" % big[np.argmax(np.abs(big))]
    small = values[(size > 0) & (size <= SMALLEST)]
    return "%g, which becomes zero" % small[np.argmin(np.abs(small))] if small.size else ""
