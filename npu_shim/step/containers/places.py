"""Elements of buffers at traced places, written and taken in place without a look at whether these are in range.

`rooms` notes what is out of range; indexing of jax.numpy would look at it again, and move it.
"""

from __future__ import annotations

from typing import Any, Sequence

import jax
import jax.numpy as jnp

from npu_shim.step.refusals import Unsupported


def require_shape(elements: Sequence[int], element: Sequence[int]) -> None:
    """Raises Unsupported where an element has not the shape of the others: JAX would write a part, or repeat it."""
    if tuple(elements) != tuple(element):
        raise Unsupported("its elements have several shapes: %s and %s" % (list(elements), list(element)))


def put(buffer: Any, at: Any, value: Any) -> Any:
    """A buffer with an element at a place that is not below 0; one behind the end stands for the last.

    Raises:
        Unsupported: the buffer's elements have another shape.
    """
    if not buffer.shape[0]:
        return buffer
    require_shape(buffer.shape[1:], value.shape)
    return jax.lax.dynamic_update_index_in_dim(buffer, value, at, 0, allow_negative_indices=False)


def taken(buffer: Any, at: Any) -> Any:
    """The element of a buffer at such a place, zeros of an empty one."""
    if not buffer.shape[0]:
        return jnp.zeros(buffer.shape[1:], buffer.dtype)
    return jax.lax.dynamic_index_in_dim(buffer, at, 0, keepdims=False, allow_negative_indices=False)
