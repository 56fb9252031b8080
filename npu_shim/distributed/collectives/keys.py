"""Instance keys: the numbers by which TensorFlow knows which collectives of different ranks belong together.

A key comes from what a collective moves (its kind, its dtype and shape, the names of its variables), so that ranks
which build their graphs in different orders still meet. Where nothing has a name, it comes from the number of the call
among the calls of its kind: ranks that build the same graph count the same calls. TensorFlow remembers a key's dtype
and shape from one graph of a process to the next and ends all collectives where another one comes: what has another
dtype or shape has another key, and what has a shape that is not known beforehand has another key in each graph. NCCL's
collectives run from the largest key down, so a label's keys count down.

A key has 30 bits, so two labels of a graph can fall on one block of keys. The later of them takes a block by another
hash of itself; ranks that build the two in different orders then have different keys for both, and different labels for
the block that both want. They tell each other their labels before they run anything (see `watch`), and end with an
error that names them.
"""

from __future__ import annotations

import hashlib
import itertools
import weakref
from typing import Any, Sequence

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.errors import ConfigError

BLOCK, BLOCKS = 2**9, 2**21  # keys of one label, and how many blocks there are: all keys are below 2**30
GROUPS = 2**30  # keys of groups, above that of the world's
WIDE = 2**61  # numbers that have room for a hash in which nothing collides
SHOWN = 100  # characters of a label that ranks tell each other; the rest of it is a hash

_moves: dict[int, list[tuple[str, str]]] = {}  # key -> (name, dtype and shape) of what its collective moves
_graphs = weakref.WeakKeyDictionary()  # graph -> _Used
_groups: dict[int, str] = {}  # key of a group -> its name, also after the group: TensorFlow remembers its members
_numbers = itertools.count(1)  # of the graphs with collectives whose shapes are not known beforehand


class _Used:
    """What a graph has taken: blocks by label, uses of a label, calls of a kind."""

    def __init__(self) -> None:
        self.blocks: dict[str, int] = {}
        self.uses: dict[str, int] = {}
        self.calls: dict[str, int] = {}
        self.labels: dict[int, str] = {}  # by block
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
    name, used = "%s/%d" % (label, number // BLOCK), _used()
    if name not in used.blocks:
        blocks = (wide(name + " again" * tries) % BLOCKS for tries in itertools.count())
        used.blocks[name] = next(block for block in blocks if block not in used.labels)
        used.labels[used.blocks[name]] = _shown(name)
    return 1 + used.blocks[name] * BLOCK + BLOCK - 1 - number % BLOCK


def label(graph: tf.Graph, key: int | None) -> str:
    """Returns the label that has an instance key in a graph, as ranks tell each other; "" where none has it."""
    used = _graphs.get(_outermost(graph))
    return "" if used is None or key is None else used.labels.get((key - 1) // BLOCK, "")


def group(name: str) -> int:
    """Returns the key of a group other than the world.

    Raises:
        ConfigError: an earlier group of this process has the same key.
    """
    key = 2 + wide(name) % GROUPS
    if _groups.setdefault(key, name) != name:
        text = "the groups '%s' and '%s' have the same key (%d) in TensorFlow: give one of them another name"
        raise ConfigError(text % (_groups[key], name, key))
    return key


def wide(text: str) -> int:
    """Returns a number of 61 bits for a text, which no other text has."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") % WIDE


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
    return _graphs.setdefault(_outermost(tf.get_default_graph()), _Used())


def _outermost(graph: tf.Graph) -> tf.Graph:
    while getattr(graph, "outer_graph", None) is not None:  # bodies of functions run in the graph that calls them
        graph = graph.outer_graph
    return graph


def _shown(label: str) -> str:
    text = label.replace("\n", ", ")
    return text if len(text) <= SHOWN else "%s... (%x)" % (text[:SHOWN], wide(label))
