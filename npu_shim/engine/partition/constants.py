"""What XLA must know when it compiles a program: values of tensors, which become a part of it."""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple

import numpy as np

from npu_shim.rewriter.graph.arguments import source_of
from npu_shim.xla import known_feeds
from npu_shim.xla.passes import pruning
from npu_shim.xla.passes.legalize.site import ROWS
from npu_shim.xla.passes.resources import random_ops

LAST = "last"


class Constant(NamedTuple):
    """What XLA must know when it compiles.

    Attributes:
        tensor: name of a tensor whose value it is;
        node: or name of a node that it is written to; "" for none.
        attribute: of that node: ROWS, the tensor's last value plus 1, or VALUE, its value; or LAST, the value with
            which the node, a Switch, lets a counter leave its loop.
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
    prepared = prepared.with_graph(known_feeds.with_constants(graph_def, fed))
    known = {constant.node: (constant.attribute, int(value)) for constant, value in constants.items()
             if constant.node and constant.attribute != LAST}  # fmt: skip
    for node in prepared.graph_def.node:
        if node.name in known:
            name, value = known[node.name]
            node.attr[name].i = value
    return prepared
