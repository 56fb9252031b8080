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

from typing import Container

from npu_shim.rewriter.ir import graphdef
from npu_shim.rewriter.ir.attributes import DType
from npu_shim.rewriter.ir.definitions import Argument, expanded
from npu_shim.rewriter.ir.graph import Graph, Node, Value
from npu_shim.rewriter.ir.module import Function, Module
from npu_shim.rewriter.tables import dtypes
from npu_shim.rewriter.tables.dtypes import FLOAT32, LOW
from npu_shim.rewriter.tables.slow_kernels import EXACT, SLOW


def as_float32(module: Module) -> None:
    """Makes `SLOW` ops of low dtypes float32's between Casts, in a module with functional control flow."""
    graphs = [module.graph, *(module.functions[name] for name in module.functions)]
    if any(node.op in SLOW and _low_types(node) for graph in graphs for node in graph):
        kept = {value.node for value in module.graph.results.values()}  # what is fetched keeps its dtype
        for graph in graphs:
            _Body(graph, kept).change()


def _low_types(node: Node) -> list[str]:
    """Names of the attributes of a node that are low dtypes."""
    return [name for name, value in node.attrs.items() if isinstance(value, DType) and value in LOW]


def _runs_as_float32(node: Node) -> bool:
    """Whether a node is a slow op of low types, or a Cast up: of what has float32's kernel it has nothing to do."""
    if node.op == "Cast":
        return node.attrs["SrcT"] in LOW and node.attrs["DstT"] == FLOAT32
    return node.op in SLOW and bool(_low_types(node))


def _low(node: Node, side: str) -> dict[int, int]:
    """Number -> dtype of the inputs or outputs of a node that are low; `side` is the Definition's name for them."""
    definition = node.graph.module.definition(node.op)
    arguments: tuple[Argument, ...] = getattr(definition, side)
    given = enumerate(dtype for _, dtype in expanded(arguments, node, definition))
    return {number: dtype for number, dtype in given if dtype in LOW}


class _Body:
    """A graph, or the body of a function.

    Args:
        graph: it is changed.
        kept: nodes that are not changed.
    """

    def __init__(self, graph: Graph, kept: Container[Node]) -> None:
        self._graph, self._kept = graph, kept
        self._dtypes: dict[Value, int] = {}  # result that was low and is float32 -> its dtype
        self._casts: dict[tuple[Value, int], Value] = {}  # (value, dtype) -> its Cast

    def change(self) -> None:
        """Gives the slow ops, and those that pass values on to them, float32's kernels."""
        raised = self._raised()
        for node in raised:
            self._dtypes.update((node.output(port), dtype) for port, dtype in _low(node, "outputs").items())
        for node in self._graph if raised else ():
            wide = _low(node, "inputs") if node in raised else {}
            values = [
                self._wide(value, wide[number]) if number in wide else self._narrow(value)
                for number, value in enumerate(node.inputs)
            ]
            if tuple(values) != node.inputs:
                node.set_inputs(values)
        for node in raised:
            for name in _low_types(node):
                node.attrs[name] = DType(FLOAT32)
        for name, value in self._graph.results.items():
            self._graph.results[name] = self._narrow(value)

    def _narrow(self, value: Value) -> Value:
        """What a node that is not changed reads for a value."""
        return self._cast(value, FLOAT32, self._dtypes[value]) if value in self._dtypes else value

    def _wide(self, value: Value, dtype: int) -> Value:
        """What a changed node reads, as float32, for a value of a low dtype."""
        if value in self._dtypes and value.node.op in EXACT:  # its values are of the low dtype
            return value
        return self._cast(self._narrow(value), dtype, FLOAT32)

    def _cast(self, value: Value, source: int, target: int) -> Value:
        if (value, target) not in self._casts:
            text = graphdef.body_text(value) if isinstance(self._graph, Function) else str(value)
            stem = text[:-4] if text.endswith(":y:0") else text  # of a Cast in a function
            name = self._graph.free_name("%s/%s" % (stem.replace(":", "/"), dtypes.name(target)))
            attrs = {"SrcT": DType(source), "DstT": DType(target), "Truncate": False}
            cast = self._graph.add(name, "Cast", [value], attrs=attrs, origin=value.node)
            self._casts[value, target] = cast.value
        return self._casts[value, target]

    def _raised(self) -> dict[Node, None]:
        """The nodes that run as float32, and those that pass values on to them."""
        raised = dict.fromkeys(node for node in self._graph if node not in self._kept and _runs_as_float32(node))
        pending = list(raised)
        for node in pending:  # grows while it is read
            sources = dict.fromkeys(node.inputs[number].node for number in _low(node, "inputs"))
            carriers = [s for s in sources if s.op in EXACT and s not in raised and s not in self._kept]
            raised.update(dict.fromkeys(carriers))
            pending += carriers
        return raised
