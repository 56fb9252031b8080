"""Computes low-precision products, windows and sums with float32's kernels in programs for CPUs, as sessions do.

    x -> MatMul (float16) -> Relu (float16) -> MatMul (float16) -> Tanh (float16)
    x -> Cast -> MatMul -> Cast, Cast -> Relu -> MatMul (all float32) -> Cast, Cast -> Tanh (float32) -> Cast (float16)

The values are those of sessions, where `rewriter/graph/emulation.py` does the same: low inputs, float32 sums, a low
result; an op that only passes values on stays float32 between such ops. XLA computes what is float16 with a conversion
in front of each element and behind it, window by window, which took LeNet's step twice float32's time. It keeps the
Casts down and up again that stand in the graph.

It is the last change to a step: what looks for products and their sums finds them in the dtypes that were decided.
"""

from __future__ import annotations

from typing import Any, Iterable, NamedTuple

import tensorflow.compat.v1 as tf

from npu_shim.rewriter import tf_internals
from npu_shim.rewriter.graph import arguments
from npu_shim.rewriter.graph.arguments import source_of
from npu_shim.rewriter.tables.dtypes import FLOAT32, LOW
from npu_shim.rewriter.tables.slow_kernels import EXACT, SLOW

IN_FUNCTIONS = ":y:0"  # how the nodes of a function read a Cast


def as_float32(graph_def: Any, keep: Iterable[str] = ()) -> Any:
    """Returns a GraphDef whose `SLOW` ops are float32's between Casts; the same object if it has no low ones.

    Args:
        graph_def: tf.compat.v1.GraphDef with functional control flow; it is not changed.
        keep: names of nodes whose results keep their dtypes.
    """
    bodies = [graph_def.node, *(function.node_def for function in graph_def.library.function)]
    if not any(node.op in SLOW and _low_types(node) for nodes in bodies for node in nodes):
        return graph_def
    made = tf.GraphDef()
    made.CopyFrom(graph_def)
    _Body(made.node, "", keep).change()
    for function in made.library.function:
        body = _Body(function.node_def, IN_FUNCTIONS)
        body.change()
        for name, text in list(function.ret.items()):
            function.ret[name] = body.low(text)
    return made


def _low_types(node: Any) -> list[str]:
    """Names of the attributes of a node that are low dtypes."""
    return [name for name, value in node.attr.items() if value.type in LOW]


def _runs_as_float32(node: Any) -> bool:
    """Whether a node is a slow op of low types, or a Cast up: of what has float32's kernel it has nothing to do."""
    if node.op == "Cast":
        return node.attr["SrcT"].type in LOW and node.attr["DstT"].type == FLOAT32
    return node.op in SLOW and bool(_low_types(node))


class _Result(NamedTuple):
    """A result that was low and is float32.

    Attributes:
        dtype: that it had.
        exact: whether its values are of that dtype, since the op passes values on.
    """

    dtype: int
    exact: bool


class _Body:
    """The nodes of a graph or of a function, which are changed in place.

    Args:
        nodes: repeated field of NodeDefs.
        output: what follows a Cast's name where its result is read.
        keep: names of nodes that are not changed.
    """

    def __init__(self, nodes: Any, output: str, keep: Iterable[str] = ()) -> None:
        self._all, self._output = nodes, output
        self._nodes = {node.name: node for node in nodes}
        self._names, self._keep = set(self._nodes), frozenset(keep)
        self._definitions = tf_internals.op_defs()
        self._results: dict[str, _Result] = {}  # text by which it is read -> _Result
        self._casts: dict[tuple[str, int], str] = {}  # (text, dtype) -> text by which its Cast is read

    def change(self) -> None:
        """Gives the slow ops, and those that pass values on to them, float32's kernels."""
        raised = self._raised()
        for name in raised:
            self._results.update(self._results_of(self._nodes[name]))
        for name, node in self._nodes.items():
            wide = dict(self._low_inputs(node)) if name in raised else {}
            for number, text in enumerate(node.input):
                node.input[number] = self._wide(text, wide[number]) if number in wide else self.low(text)
        for name in raised:
            for attribute in _low_types(self._nodes[name]):
                self._nodes[name].attr[attribute].type = FLOAT32

    def low(self, text: str) -> str:
        """By which text a node that is not changed reads what it read by `text`."""
        result = self._results.get(text)
        return text if result is None else self._cast(text, FLOAT32, result.dtype)

    def _wide(self, text, dtype):
        """By which text a changed node reads, as float32, what it read by `text` as a low dtype."""
        if text in self._results and self._results[text].exact:
            return text
        return self._cast(self.low(text), dtype, FLOAT32)

    def _cast(self, text, source, target):
        key = text, target
        if key not in self._casts:
            stem = text[: -len(self._output)] if self._output and text.endswith(self._output) else text
            name = "%s/%s" % (stem.replace(":", "/"), tf.DType(target).name)
            while name in self._names:
                name += "_"
            self._names.add(name)
            node = self._all.add(name=name, op="Cast", input=[text])
            node.attr["SrcT"].type, node.attr["DstT"].type, node.attr["Truncate"].b = source, target, False
            self._casts[key] = name + self._output
        return self._casts[key]

    def _raised(self):
        """Names of the nodes that run as float32, and of those that pass values on to them."""
        raised = {name for name, node in self._nodes.items() if _runs_as_float32(node)} - self._keep
        waiting = list(raised)
        while waiting:
            node = self._nodes[waiting.pop()]
            sources = {source_of(node.input[number]) for number, _ in self._low_inputs(node)}
            carriers = {name for name in sources - raised - self._keep if self._passes_on(name)}
            raised |= carriers
            waiting += carriers
        return raised

    def _passes_on(self, name):
        return name in self._nodes and self._nodes[name].op in EXACT

    def _low_inputs(self, node):
        """(number, dtype) of the inputs that are low."""
        dtypes = arguments.dtypes(self._definitions[node.op].input_arg, node)
        return [(number, dtype) for number, dtype in enumerate(dtypes) if dtype in LOW]

    def _results_of(self, node):
        """Yields (text, _Result) for each text by which a low result is read."""
        definitions = self._definitions[node.op].output_arg
        named = [argument.name for argument in arguments.of_each(definitions, node)]
        for number, dtype in enumerate(arguments.dtypes(definitions, node)):
            if dtype in LOW:
                place = "%s:%d" % (named[number], number - named.index(named[number])) if self._output else str(number)
                result = _Result(dtype, node.op in EXACT)
                yield "%s:%s" % (node.name, place), result
                if place == "0":
                    yield node.name, result
