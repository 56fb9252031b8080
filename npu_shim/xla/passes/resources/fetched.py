"""Gives fetches names that survive the conversions, which remove some tensors.

A loop's Exit and a tf.cond's Merge become outputs of a While or If; an Identity (or NoOp) that consumes them stays. An
assignment returns a reference, which the conversion removes; its Identity becomes a read after the write.
"""

from __future__ import annotations

from typing import Any

from npu_shim.rewriter.ir.attributes import DType
from npu_shim.rewriter.ir.definitions import expanded
from npu_shim.rewriter.ir.graph import CONTROL, Value
from npu_shim.rewriter.ir.module import Module
from npu_shim.rewriter.tables.dtypes import NUMBERS
from npu_shim.xla.passes.resources.late_reads import VARIABLES

SCOPE = "npu_shim/fetch_%d"
ENDS = ("Exit", "Merge", "RefExit", "RefMerge")
INT32 = DType(NUMBERS["int32"])


def anchor(module: Module, context: Any = None) -> None:
    """Has nodes that stay stand for the results that do not."""
    graph = module.graph
    for number, (name, value) in enumerate(list(graph.results.items())):
        node = value.node
        if node.op not in ENDS and not _is_reference(value):
            continue
        if value.index == CONTROL:
            added = graph.add(SCOPE % number, "NoOp", controls=[node], origin=node)
            graph.results[name] = added.output(CONTROL)
        else:
            is_index = node.op.endswith("Merge") and value.index == 1  # of the input that arrived
            dtype = INT32 if is_index else node.attrs["T"]
            graph.results[name] = graph.add(SCOPE % number, "Identity", [value], attrs={"T": dtype}, origin=node).value


def _is_reference(value: Value) -> bool:
    """Whether a value is a reference, and not a variable itself."""
    node = value.node
    definition = node.graph.module.definition(node.op)
    if value.index == CONTROL or node.op in VARIABLES or definition is None:
        return False
    outputs = [argument for argument, _ in expanded(definition.outputs, node, definition)]
    return value.index < len(outputs) and outputs[value.index].is_ref
