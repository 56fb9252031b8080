"""Feeds that say sizes: a step with tensors of open size is compiled for their values, which makes the sizes known.

    rows = x[:n]     for an n that is fed     becomes, for n = 3,     rows = x[:3]

TensorFlow's XLA makes constants of such feeds anyhow, and compiles the step again for each value; but what it is given
before that was made for any n.
"""

from __future__ import annotations

from typing import Any, Mapping, Sequence

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.graph import arguments
from npu_shim.rewriter.graph.arguments import source_of
from npu_shim.xla.passes.shapes.compile_time import SHAPES
from npu_shim.xla.passes.shapes.open_counts import SIZES

KNOWN = "/known"  # suffix of a feed whose value is part of the program


class Known:
    """The feeds whose values are part of a step's programs: none at first, then the lengths that are fed.

    Args:
        prepared: `step_function.Prepared`.
        count: steps in one call; where they are several, no value is part of a program.
    """

    def __init__(self, prepared: Any, count: int) -> None:
        self._prepared, self._count, self._names = prepared, count, list(prepared.feeds)
        self._numbers: list[int] = []

    def key(self, arrays: Sequence[Any]) -> tuple[bytes, ...]:
        """The values that are part of the program for these feeds, np.ndarrays in their order."""
        return tuple(arrays[number].tobytes() for number in self._numbers)

    def prepared(self, arrays: Sequence[Any]) -> Any:
        """Returns the Prepared for these feeds."""
        values = {self._names[number]: arrays[number] for number in self._numbers}
        return known(self._prepared, values) if values else self._prepared

    def more(self) -> bool:
        """Makes lengths that are fed known; False if they are, if there are none, or in a loop of steps."""
        if self._numbers or self._count > 1:
            return False
        self._numbers = list(map(self._names.index, lengths(self._prepared)))
        return bool(self._numbers)


def lengths(prepared: Any) -> list[str]:
    """Returns the names of the Placeholders of integers that sizes are computed of, where nothing else is needed.

    Args:
        prepared: `step_function.Prepared`.
    """
    nodes = {node.name: node for node in prepared.graph_def.node}
    named: set[str] = set()
    for node in prepared.graph_def.node:
        given = arguments.data(node) if node.op in SIZES else []
        for number in SIZES.get(node.op, ()):
            named.update(_feeds(given[number], nodes, prepared.feeds) if number < len(given) else ())
    return [name for name in prepared.feeds if name in named]


def says_sizes(prepared: Any, name: str) -> bool:
    """Whether a node of a Prepared has inputs that say sizes, which `lengths` may make known."""
    return any(node.name == name and node.op in SIZES for node in prepared.graph_def.node)


def _feeds(text: str, nodes: Mapping[str, Any], feeds: Mapping[str, Any]) -> set[str]:
    """The feeds that determine a tensor, besides constants and shapes; empty where something else does."""
    pending, seen, named = [source_of(text)], set(), set()
    while pending:
        node = nodes[pending.pop()]
        if node.name in seen:
            continue
        seen.add(node.name)
        taken = list(map(source_of, arguments.data(node)))
        if node.name in feeds and feeds[node.name].dtype.is_integer:
            named.add(node.name)
        elif node.op != "Const" and not taken:
            return set()
        elif node.op not in SHAPES:
            pending += taken
    return named


def known(prepared: Any, values: Mapping[str, Any]) -> Any:
    """Returns a `step_function.Prepared` whose nodes take constants in place of feeds, which stay as they are.

    Args:
        prepared: without them; it is not changed.
        values: name of a Placeholder -> np.ndarray.
    """
    graph_def = tf.GraphDef()
    graph_def.CopyFrom(prepared.graph_def)
    return prepared.with_graph(with_constants(graph_def, values))


def with_constants(graph_def: Any, values: Mapping[str, Any]) -> Any:
    """Replaces feeds by constants in a GraphDef, in place, and returns it; values: name of a Placeholder -> value."""
    for node in graph_def.node:
        for number, text in enumerate(node.input):
            if source_of(text) in values and text[0] != "^":
                node.input[number] = source_of(text) + KNOWN
    for name, value in values.items():
        node = graph_def.node.add(name=name + KNOWN, op="Const")
        node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value))
        node.attr["dtype"].type = node.attr["value"].tensor.dtype
    return graph_def
