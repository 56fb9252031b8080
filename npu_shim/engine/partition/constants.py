"""What XLA must know when it compiles a program: values of tensors, which become a part of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Mapping, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from npu_shim.rewriter.graph.arguments import source_of
from npu_shim.session.clusters import pruning
from npu_shim.xla.passes.legalize.site import ROWS
from npu_shim.xla.passes.resources import random_ops

KNOWN = "/known"  # suffix of a feed whose value is part of the program


class Constant(NamedTuple):
    """What XLA must know when it compiles.

    Attributes:
        tensor: name of a tensor whose value it is;
        node: or name of a node that it is written to; "" for none.
        attribute: of that node: ROWS, the tensor's last value plus 1, or VALUE, its value.
    """

    tensor: str
    node: str = ""
    attribute: str = ""

    def of(self, value: Any) -> Any:
        """The constant, np.ndarray, given the tensor's value."""
        value = np.asarray(value)
        return value[-1:].sum() + bool(value.size) if self.attribute == ROWS else value


def fixed(prepared: Any, constants: Mapping[Constant, Any]) -> Any:
    """Returns a `step_function.Prepared` with values in place of what computes or feeds them.

    Args:
        prepared: without them; it is not changed.
        constants: dict of Constants to np.ndarray.
    """
    kept = list(map(source_of, [*prepared.places.values(), *random_ops.advances(prepared.graph_def)]))
    feeds = {feed.name for feed in prepared.feeds.values()}
    values = {constant.tensor: value for constant, value in constants.items() if not constant.node}
    computed = {name: value for name, value in values.items() if name not in feeds}
    graph_def = pruning.cut_out(prepared.graph_def, kept, (), computed)[0]
    fed = {place: values[feed.name] for place, feed in prepared.feeds.items() if feed.name in values}
    prepared = replace(prepared, graph_def=_with_known_feeds(graph_def, fed))
    known = {constant.node: (constant.attribute, int(value)) for constant, value in constants.items() if constant.node}
    for node in prepared.graph_def.node:
        if node.name in known:
            name, value = known[node.name]
            node.attr[name].i = value
    return prepared


def _with_known_feeds(graph_def: Any, values: Mapping[str, Any]) -> Any:
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
