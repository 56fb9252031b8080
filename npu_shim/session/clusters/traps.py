"""Chooses the nodes that stay out of a session's XLA clusters, so that no cluster is recompiled for every batch.

XLA compiles a cluster for the shapes of its inputs. So a cluster must not hold ops that derive shapes from data, see
rewriter/analysis/data_sizes.py. Strings are out as well, and ops of which XLA's kernel gives something else.
TensorFlow itself leaves out everything else that XLA cannot compile.
"""

from __future__ import annotations

import functools

from npu_shim.rewriter.analysis import data_sizes
from npu_shim.rewriter.ir.attributes import DType
from npu_shim.rewriter.ir.definitions import registered
from npu_shim.rewriter.ir.graph import Graph, Node

STRING = 7  # tf.string
# InTopK: the prediction for what is no class is 0, and NaN is compared; Cumsum, Cumprod: wrong of padded rows
OTHERWISE = ("InTopK", "InTopKV2", "Cumsum", "Cumprod")


def excluded(graph: Graph) -> set[str]:
    """Returns the names of the nodes of a graph that stay out of clusters."""
    dependent = data_sizes.of(graph).dependent
    return {node.name for node in graph if node in dependent or node.op in OTHERWISE or _has_strings(node)}


def _has_strings(node: Node) -> bool:
    takes_strings, types = _types_of(node.op)
    values = map(node.attrs.get, node.attrs if types is None else types)
    dtypes = (dtype for value in values for dtype in (value if type(value) is tuple else (value,)))
    return takes_strings or any(isinstance(dtype, DType) and dtype == STRING for dtype in dtypes)


@functools.lru_cache(maxsize=None)
def _types_of(op: str) -> tuple[bool, list[str] | None]:
    """(Whether an op takes or gives strings, the names of its attributes that may say so); None for those of any."""
    definition = registered(op)
    if definition is None:
        return False, None
    types = [
        name
        for name, (kind, _, allowed) in definition.attributes.items()
        if kind in ("type", "list(type)") and (not allowed or STRING in allowed)
    ]
    return any(argument.dtype == STRING for argument in (*definition.inputs, *definition.outputs)), types
