"""Hosts of which each has an input of its own: their batches are one, and a host feeds and fetches its rows of it.

    two hosts, x: [8, 3] on each  ->  the program takes x: [16, 3], rows 0 to 7 of the first host
    logits: [16, 10]              ->  each host fetches [8, 10], the rows of its own

A feed is a part of the batch where the graph leaves its first dimension open. Where the graph says how many rows there
are, it may hold that number in a constant (the gradient of a mean does): such a step has no batch of another size.
"""

from __future__ import annotations

from typing import Any, Collection, Mapping, Sequence

import numpy as np
import tensorflow.compat.v1 as tf

from npu_shim.distributed.hosts.coming import OPEN
from npu_shim.engine.partition import nodes as walks
from npu_shim.session.interception.training import APPLIES

WORD = "--input-per-host"
FIXED = (
    "npu_shim: hosts: with %s, '%s' has the fixed shape %s, so that the graph takes the batch of one host, and not "
    "that of all: " + OPEN + ", or give all hosts the same input, without %s"
)
COMPUTED = (
    "npu_shim: hosts: with %s, the session would compute '%s', of shape %s, of one host's input alone, and the step "
    "needs that of all: give all hosts the same input, without %s"
)
LEFT = (
    "npu_shim: hosts: %s runs in each host's session (%s): with %s each host would train by itself, of its own input; "
    "give all hosts the same input, without %s"
)
READERS = ("IteratorGet", "IteratorV", "QueueDequeue", "ReaderRead")  # beginnings of the ops that read input


class OwnInput:
    """What is a part of the batch in a session's steps.

    Args:
        graph: the session's tf.Graph.
        hosts: how many there are.
        index: this one's number.
    """

    def __init__(self, graph: Any, hosts: int, index: int) -> None:
        self._graph, self._hosts, self._index = graph, hosts, index

    def rows(
        self, feeds: Mapping[str, Any], fed: Collection[str], constants: Collection[Any]
    ) -> dict[str, int]:
        """Returns how many rows of the batch this host gives: dict of the name of a feed of the program to a number.

        Args:
            feeds: name of a tensor -> its value, of all that the program takes of the session.
            fed: names of those that the script feeds itself.
            constants: the `step.Constant`s that are part of the program.

        Raises:
            tf.errors.InvalidArgumentError: the step cannot take a batch of several hosts.
        """
        rows = {}
        for name, value in feeds.items():
            shape = np.shape(value)
            if shape and self._is_open(name):
                rows[name] = int(shape[0])
            elif name not in fed:
                raise _error(FIXED if shape else COMPUTED, WORD, name, list(shape), WORD)
        for source in (constant.source for constant in constants):
            if source not in fed or source in rows:
                raise _error(COMPUTED, WORD, source, self._graph.get_tensor_by_name(source).shape, WORD)
        return rows

    def shapes(self, names: Sequence[str], shapes: Sequence[Sequence[int]], rows: Collection[str]) -> list[Any]:
        """Returns the shapes of feeds with the rows of all hosts, in the order of the names."""
        return [
            (shape[0] * self._hosts, *shape[1:]) if name in rows else tuple(shape) for name, shape in zip(names, shapes)
        ]

    def fetched(self, results: Mapping[str, Any], rows: Mapping[str, int]) -> dict[str, Any]:
        """What a program has fetched, of what has a row for each of the batch this host's rows.

        Args:
            results: name of a tensor -> its value.
            rows: as `rows` returns them.
        """
        sizes = {count * self._hosts: count for count in rows.values()}
        return {name: self._own(name, value, sizes) for name, value in results.items()}

    def _own(self, name: str, value: Any, sizes: Mapping[int, int]) -> Any:
        count = sizes.get(np.shape(value)[0]) if np.ndim(value) else None
        if count is None or not self._is_open(name):
            return value
        return value[self._index * count : (self._index + 1) * count]

    def _is_open(self, name: str) -> bool:
        shape = self._graph.get_tensor_by_name(name).shape
        return shape.ndims is None or (shape.ndims > 0 and tf.compat.dimension_value(shape[0]) is None)


def learns(nodes: Mapping[str, Any], fed: Collection[str], local: Collection[str]) -> bool:
    """Whether a run trains variables of what it is fed or reads.

    Args:
        nodes: name -> Node, for all nodes that it needs.
        fed: names of the tensors that are fed.
        local: names of the variables that belong to no model.
    """
    if not fed and not any(node.op.startswith(READERS) for node in nodes.values()):
        return False
    applied = [node.name for node in nodes.values() if node.op.startswith(APPLIES)]
    worked = [node.name for node in nodes.values() if node.learned and node.computes] + applied
    return any(not nodes[name].writes.issubset(local) for name in walks.downstream(nodes, worked))


def left(text: str, reason: str) -> Exception:
    """Returns the error of a run that trains in each host's session; `text` is the run in a few words."""
    return _error(LEFT, text, reason, WORD, WORD)


def _error(text: str, *words: Any) -> Exception:
    error: Exception = tf.errors.InvalidArgumentError(None, None, text % words)
    return error
