"""What TensorFlow checks when a step runs and XLA does not: errors that become numbers. Said once, before they can."""

from __future__ import annotations

import functools
import logging
from typing import Any, Callable

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.graph.arguments import data, source_of
from npu_shim.rewriter.graph.walks import reached
from npu_shim.rewriter.graphdef import functions, registry
from npu_shim.session.clusters.marking import MARK

LOG = logging.getLogger("npu_shim")
SHOWN = 3  # node names in a line
SIGNED, UNSIGNED = (tf.int8, tf.int16, tf.int32, tf.int64), (tf.uint8, tf.uint16, tf.uint32, tf.uint64)
INTEGERS = frozenset(dtype.as_datatype_enum for dtype in SIGNED + UNSIGNED)
SIZES = ("Shape", "ShapeN", "Size", "Rank", "Const")
GATHERS = ("Gather", "GatherV2", "GatherNd", "ResourceGather", "ResourceGatherNd")
UPDATES = (
    "ScatterAdd", "ScatterSub", "ScatterUpdate", "ResourceScatterAdd", "ResourceScatterSub", "ResourceScatterUpdate",
    "SparseApply*", "ResourceSparseApply*", "ScatterNd", "TensorScatter*",
)  # fmt: skip
OURS = "npu_shim_"  # in the names of ops of ours: their indices are in range
SPARSE = ("SparseToDense", "SparseTensorDenseMatMul")
DIVISIONS = ("Div", "FloorDiv", "FloorMod", "Mod", "TruncateDiv", "TruncateMod")
MATRICES = ("MatrixInverse", "MatrixSolve", "MatrixTriangularSolve", "Cholesky", "SelfAdjointEigV2")
UNWATCHED = "ignores tf.check_numerics"
# what happens -> (ops, those with a * by how they begin; whether for integers only)
KINDS = {
    "takes the last row for an index that is out of range": ((*GATHERS, "CropAndResize"), False),
    "takes the nearest part for a slice that is out of range": (("Slice", "StridedSlice"), False),
    "gives -1, or the largest number, for an integer divided by zero": (DIVISIONS, True),
    "gives 0 for a negative power of an integer": (("Pow",), True),
    "gives NaN for a label that is out of range": (("SparseSoftmaxCrossEntropyWithLogits",), False),
    "leaves out an update of a row whose index is out of range": (UPDATES, False),
    "takes sparse indices in any order, and leaves out those out of range": (SPARSE, False),
    "takes for a permutation what is none": (("InvertPermutation",), False),
    "reverses across the end of a sequence for a length beyond it": (("ReverseSequence",), False),
    "leaves out negative numbers of a histogram": (("Bincount", "DenseBincount"), False),
    "draws any integer where minval is not below maxval": (("RandomUniformInt",), False),
    "keeps all of a matrix where a band is wider": (("MatrixBandPart",), False),
    "gives numbers for a matrix that cannot be inverted or decomposed": (MATRICES, False),
    "stays at the limit of a counter": (("CountUpTo", "ResourceCountUpTo"), False),
    "gives a CTC loss of no labels, an infinite one where labels need more time than there is": (("CTCLoss",), False),
    UNWATCHED: (("CheckNumerics", "CheckNumericsV2"), False),
    "ignores tf.Assert": (("Assert",), False),
}  # source: TensorFlow 2.15.1, tried on CPU
# op -> the inputs that decide whether it is an error
DECIDING = {
    "Slice": (1, 2), "StridedSlice": (1,), "ReverseSequence": (1,), "RandomUniformInt": (1, 2),
    "MatrixBandPart": (1, 2),
}  # fmt: skip
# op -> the values of its second input, a constant, with which it never is
SAFE: dict[str, Callable[[Any], Any]] = {"Pow": lambda value: value >= 0}
SAFE.update(dict.fromkeys(DIVISIONS, lambda value: value != 0))


def tell(graph_def: Any, watches: bool = False) -> None:
    """Logs what XLA does instead of an error in a compiled step, with nodes of its GraphDef; once a process each.

    Args:
        graph_def: of the step.
        watches: whether a session runs the step where a check of numbers in a function does not hold.
    """
    for body, nodes in enumerate(_bodies(graph_def)):
        for what, names in _unchecked_ops(nodes, nodes):
            if not (watches and body and what == UNWATCHED):
                _once(what, names)


def tell_of_clusters(graph_def: Any, session: Any) -> None:
    """Logs it for the nodes of a GraphDef that are marked for clusters; once a session each.

    Args:
        graph_def: of `marking.mark`.
        session: what tells the session from others.
    """
    if tf.__version__.startswith("1."):  # does not tell which kernels XLA has
        return
    kernels = registry.xla_kernels()
    # asking a node for an attribute that it lacks would add it
    marked = [node for node in graph_def.node if MARK in node.attr and node.attr[MARK].b and node.op in kernels]
    for what, names in _unchecked_ops(marked, graph_def.node):
        _once(what, names, session)


def _bodies(graph_def):
    """Yields the nodes of a graph and those of each function that it calls."""
    library = {function.signature.name: function for function in graph_def.library.function}

    def called_by(nodes):
        return sorted({name for node in nodes for name in functions.called(node, library)} & library.keys())

    yield graph_def.node
    for name in reached(called_by(graph_def.node), lambda name: called_by(library[name].node_def)):
        yield library[name].node_def


def _unchecked_ops(nodes, graph):
    """Yields (what happens, names of the nodes that it happens to); `graph` has the nodes, and all that they read."""
    by_kind = {what: [] for what in KINDS}
    for node in nodes:
        for what, integers in _kinds_of(node.op):
            if not integers or node.attr["T"].type in INTEGERS:
                by_kind[what].append(node)
    whole = {node.name: node for node in graph} if any(by_kind.values()) else {}
    sizes = _OfSizes(whole)
    for what, of_kind in by_kind.items():
        own = (node for node in of_kind if OURS not in node.name)
        names = [node.name for node in own if not _is_known(node, sizes) and not _is_safe(node, whole)]
        if names:
            yield what, names


@functools.lru_cache(maxsize=None)
def _kinds_of(op):
    """(What happens, whether for integers only) for each of the kinds that an op is of."""
    return [(what, integers) for what, (ops, integers) in KINDS.items() if _is_of(op, ops)]


class _OfSizes:
    """The names of the nodes that compute with shapes and constants alone: TensorFlow and XLA know as much of them."""

    def __init__(self, nodes):
        self._nodes = nodes  # name -> NodeDef
        self._known = {}  # name -> whether it is one; None on the way there, so that no node on a cycle is

    def __contains__(self, name):
        """Looks at what the node needs, until something is found that is neither."""
        way = [name]
        while way:
            self._known.setdefault(way[-1])
            answer = self._look(self._nodes.get(way[-1]))
            if isinstance(answer, bool):
                self._known[way.pop()] = answer
            else:
                way.append(answer)
        return self._known[name]

    def _look(self, node):
        """Whether a node is one, or the name of a source that must be known first."""
        if node is None or node.op in SIZES:
            return node is not None  # an argument of a function is none
        sources = list(map(source_of, data(node)))
        unknown = [source for source in sources if source not in self._known]
        if not sources or not all(self._known.get(source, True) for source in sources):
            return False
        return unknown[0] if unknown else True


def _is_known(node, sizes):
    """Whether what decides is a matter of shapes and constants: TensorFlow and XLA know as much of it."""
    if node.op == "StridedSlice" and not node.attr["shrink_axis_mask"].i:
        return True  # x[a:b] has what there is between them
    deciding = [source_of(node.input[number]) for number in DECIDING.get(node.op, ())]
    return all(name in sizes for name in deciding or [node.name])


def _is_safe(node, nodes):
    """Whether a node, of nodes by name, has a constant with which nothing can happen: a divisor without a zero."""
    by = nodes.get(source_of(node.input[1])) if node.op in SAFE else None
    return by is not None and by.op == "Const" and bool(SAFE[node.op](tf.make_ndarray(by.attr["value"].tensor)).all())


def _is_of(op, ops):
    return any(op == pattern or (pattern[-1] == "*" and op.startswith(pattern[:-1])) for pattern in ops)


@functools.lru_cache(maxsize=None)
def _said(what, session):
    return []


def _once(what, names, session=None):
    if not _said(what, session):
        _said(what, session).extend(names)
        more = ", ... (%d in all)" % len(names) if len(names) > SHOWN else ""
        shown = ", ".join("'%s'" % name for name in names[:SHOWN]) + more
        LOG.warning("npu_shim: compiled by XLA, a step %s, where TensorFlow ends it with an error: %s", what, shown)
