"""Converts constants to low precision."""

from typing import Any, Callable, Sequence

import numpy as np
import tensorflow.compat.v1 as tf

from ..graph import folding
from ..graph.graph_view import GraphView
from ..planner.casts import CastEdit
from ..tables.dtypes import LIMITS


def write(view: GraphView, protos: Sequence[Any], cast: CastEdit, tensor: Any) -> None:
    """Evaluates a folded cast, rounding to nearest as Cast does.

    Args:
        view: GraphView of the graph.
        protos: its tf.NodeDef messages, in the order of the view.
        cast: CastEdit that is folded.
        tensor: an empty TensorProto, which gets the value in the cast's dtype.
    """
    with np.errstate(all="ignore"):
        values = np.asarray(folding.value(view, cast.source, _reader(protos)), np.float32)
    rounded = rounded_to(cast, values)
    tensor.dtype = cast.dtype
    tensor.tensor_shape.SetInParent()
    for size in values.shape:
        tensor.tensor_shape.dim.add(size=size)
    bits = rounded.view(np.uint16)
    if bits.size and (bits == bits.flat[0]).all():
        tensor.half_val.append(int(bits.flat[0]))
    else:
        tensor.tensor_content = rounded.tobytes()


def rounded_to(cast: CastEdit, values: Any) -> Any:
    """Returns the float32 values of a folded cast in its dtype.

    What overflows is infinity, as in a Cast, or the largest finite number if the cast is clamped; infinity stays.
    """
    if cast.clamped:
        largest = np.float32(LIMITS[cast.dtype].largest)
        values = np.where(np.isinf(values), values, np.clip(values, -largest, largest))
    with np.errstate(all="ignore"):
        return np.asarray(values, np.float32).astype(tf.as_dtype(cast.dtype).as_numpy_dtype)


def _reader(protos: Sequence[Any]) -> Callable[[int], Any]:
    """Returns a function that reads the value of the Const at a position."""
    return lambda position: tf.make_ndarray(protos[position].attr["value"].tensor)
