"""Products of matrices; float16 and bfloat16 with sums in float32, rounded once."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from npu_shim.step.masks import array_of, cleared
from npu_shim.step.platforms import product_of
from npu_shim.step.refusals import Unsupported
from npu_shim.step.rules.table import Attrs, Rule
from npu_shim.step.values import Rows, Turned, traced


def product(x: Any, y: Any, contracted: tuple[int, int], batch: int = 0) -> Any:
    """Sums over one axis of each: [batch..., m, k] and [batch..., k, n], by `contracted`, give [batch..., m, n]."""
    axes = tuple(range(batch))
    dims = (((contracted[0],), (contracted[1],)), (axes, axes))
    wide = lax.dot_general(traced(x), traced(y), dims, preferred_element_type=product_of(x.dtype))
    return wide.astype(x.dtype)


def matmul(attrs: Attrs, x: Any, y: Any) -> Any:
    """MatMul."""
    return product(x, y, (0 if attrs["transpose_a"] else 1, 1 if attrs["transpose_b"] else 0))


def _of_rows(attrs: Attrs, x: Any, y: Any) -> Any:
    """MatMul with rows, or rows transposed: of each row or column, or a sum over what is counted in both."""
    places = _counted(x, attrs["transpose_a"]), _counted(y, attrs["transpose_b"])
    if places == (1, 0):
        return matmul(attrs, cleared(x), cleared(y))
    if places not in ((0, None), (None, 1)):
        raise Unsupported("it gives a matrix of which both dimensions depend on data, or adds over one of them")
    result = matmul(attrs, array_of(x), array_of(y))
    return Rows(result, x.count) if places[1] is None else Turned(result, y.count, 1)


def _counted(value: Any, is_transposed: bool) -> int | None:
    """Which dimension of a factor depends on data, once it is transposed."""
    if not isinstance(value, (Rows, Turned)):
        return None
    return 1 - value.axis if is_transposed else value.axis


def batch_matmul(attrs: Attrs, x: Any, y: Any) -> Any:
    """BatchMatMul, V2 and V3: leading dimensions are broadcast; adj_x and adj_y conjugate too."""
    adjoint_x, adjoint_y = attrs["adj_x"], attrs["adj_y"]
    x, y = (jnp.conj(v) if flag and np.iscomplexobj(v) else v for v, flag in ((x, adjoint_x), (y, adjoint_y)))
    dtype = attrs.get("Tout", x.dtype)
    leading = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    x, y = (jnp.broadcast_to(value, (*leading, *value.shape[-2:])) for value in (x, y))
    rank = x.ndim
    contracted = (rank - 2 if adjoint_x else rank - 1, rank - 1 if adjoint_y else rank - 2)
    return product(x, y, contracted, rank - 2).astype(dtype)


def _products_of_rows(attrs: Attrs, x: Any, y: Any) -> Any:
    """As many products as data says: matrix by matrix of two such tensors, or of one and others that are broadcast."""
    held = [value for value in (x, y) if isinstance(value, Rows)]
    rank, count = held[0].array.ndim, held[0].count
    other_ranks = [value.ndim for value in (x, y) if not isinstance(value, Rows)]
    are_alike = all(value.array.ndim == rank and value.count is count for value in held)
    if rank < 3 or not are_alike or max(other_ranks, default=0) >= rank:
        raise Unsupported("it joins matrices whose number depends on data with others")
    return Rows(batch_matmul(attrs, array_of(x), array_of(y)), count)


def einsum(attrs: Attrs, *values: Any) -> Any:
    """Einsum."""
    dtype = values[0].dtype
    inputs, _, wanted = attrs["equation"].replace(" ", "").partition("->")
    labels = "".join(dict.fromkeys(wanted.replace("...", ".")))
    equation = "%s->%s" % (inputs, labels.replace(".", "..."))
    result = jnp.einsum(equation, *values, preferred_element_type=product_of(dtype)).astype(dtype)
    return result if len(labels) == len(wanted.replace("...", ".")) else _on_diagonals(result, wanted)


def _on_diagonals(x: Any, wanted: str) -> Any:
    """A tensor by labels of which some come twice, made of one in which they do once: zeros where they differ."""
    if "." in wanted:
        raise Unsupported("its result has a label twice and an ellipsis")
    for at, label in enumerate(wanted):
        first = wanted.index(label)
        if first < at:
            shape = [1] * (x.ndim + 1)
            shape[first] = shape[at] = x.shape[first]
            equal = np.eye(x.shape[first], dtype=bool).reshape(shape)
            x = jnp.where(equal, jnp.expand_dims(x, at), np.zeros((), x.dtype))
    return x


def cross(attrs: Attrs, x: Any, y: Any) -> Any:
    """Cross."""
    return jnp.cross(x, y)


RULES = {
    "MatMul": Rule(matmul, rows=_of_rows),
    "BatchMatMul": Rule(batch_matmul, rows=_products_of_rows),
    "BatchMatMulV2": Rule(batch_matmul, rows=_products_of_rows),
    "BatchMatMulV3": Rule(batch_matmul, rows=_products_of_rows),
    "Einsum": Rule(einsum),
    "Cross": Rule(cross),
}
