"""Instance keys: the numbers by which TensorFlow knows which collectives of different ranks belong together.

A key comes from what a collective moves (its kind, its dtype and shape, the names of its variables), so that ranks
which build their graphs in different orders still meet. Where nothing has a name, it comes from the number of the call
among the calls of its kind: ranks that build the same graph count the same calls. TensorFlow remembers a key's dtype
and shape from one graph of a process to the next and ends all collectives where another one comes: what has another
dtype or shape has another key, and what has a shape that is not known beforehand has another key in each graph. NCCL's
collectives run from the largest key down, so a label's keys count down.
"""

from __future__ import annotations

import itertools
import weakref
import zlib
from typing import Any, Sequence

import tensorflow.compat.v1 as tf

BLOCK, BLOCKS = 2**9, 2**21  # keys of one label, and how many blocks there are: all keys are below 2**30

_moves: dict[int, list[tuple[str, str]]] = {}  # key -> (name, dtype and shape) of what its collective moves
_graphs = weakref.WeakKeyDictionary()  # graph -> _Used
_numbers = itertools.count(1)  # of the graphs with collectives whose shapes are not known beforehand


class _Used:
    """What a graph has taken: blocks by label, uses of a label, calls of a kind."""

    def __init__(self) -> None:
        self.blocks: dict[str, int] = {}
        self.uses: dict[str, int] = {}
        self.calls: dict[str, int] = {}
        self.number = 0  # of the graph, once something asks for it


def described(tensor: tf.Tensor) -> str:
    """Returns a tensor's dtype and shape; in place of an unknown shape, the number of the graph."""
    if tensor.shape.is_fully_defined():
        return "%s %s" % (tensor.dtype.base_dtype.name, tensor.shape.as_list())
    used = _used()
    used.number = used.number or next(_numbers)
    return "%s in graph %d" % (tensor.dtype.base_dtype.name, used.number)


def new(label: str) -> str:
    """Returns the label, or in a graph that has used it a label of its own, the same on ranks that use it as often."""
    used = _used().uses
    used[label] = used.get(label, 0) + 1
    return label if used[label] == 1 else "%s #%d" % (label, used[label])


def instance(label: str, number: int) -> int:
    """Returns the key of a label's `number`-th collective, counted from 0."""
    name = "%s/%d" % (label, number // BLOCK)
    blocks = _used().blocks
    if name not in blocks:
        block, taken = zlib.crc32(name.encode()) % BLOCKS, set(blocks.values())
        while block in taken:
            block = (block + 1) % BLOCKS
        blocks[name] = block
    return 1 + blocks[name] * BLOCK + BLOCK - 1 - number % BLOCK


def note(key: int, moved: Sequence[tuple[str, str]]) -> None:
    """Notes for messages what a key's collective moves: the name, and the dtype and shape, of each."""
    _moves[key] = list(moved)


def noted(key: int) -> list[tuple[str, str]]:
    """Returns what `note` was told of a key."""
    return _moves.get(key, [])


def counted(kind: str, tensor: tf.Tensor) -> int:
    """Returns the key of the next call of this kind with a tensor like this one."""
    calls, kind = _used().calls, "%s %s" % (kind, described(tensor))
    calls[kind] = calls.get(kind, 0) + 1
    return instance(kind, calls[kind] - 1)


def _used() -> Any:
    graph = tf.get_default_graph()
    while getattr(graph, "outer_graph", None) is not None:  # bodies of functions run in the graph that calls them
        graph = graph.outer_graph
    return _graphs.setdefault(graph, _Used())
