"""Removes prints and assertions from a step, with the ops that compute their messages.

XLA ignores assertions and has no strings. The op becomes a NoOp, or (Print) an Identity, so control edges through it
stay. Ops that only it needed are pruned, in the graph and in function bodies. What waited for it must stay in its loop:

    Assert(ok, x)  in a loop   becomes   NoOp(^ok)        PrintV2(StringFormat(x))  in a loop   becomes   NoOp(^x)
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from npu_shim.rewriter.analysis import order
from npu_shim.rewriter.analysis.frames import frames
from npu_shim.rewriter.ir.attributes import DType
from npu_shim.rewriter.ir.graph import Node
from npu_shim.rewriter.ir.module import Function, Module
from npu_shim.rewriter.tables import dtypes
from npu_shim.session import lines
from npu_shim.xla.passes import dead_control_dependencies

SILENT = ("Assert", "PrintV2")
FORWARDING = ("Print",)
CHECKS = ("CheckNumerics", "CheckNumericsV2")  # forward too; a compiled step ignores them, and says so
TEXTS = ("AsString", "StringFormat", "StringJoin")
STUCK = re.compile("(^|/)report_stuck(_[0-9]+)?/")  # names of loss_scale/steps/stuck.py
STRING = dtypes.NUMBERS["string"]


def eliminate(module: Module, context: Any = None) -> None:
    """Silences the prints and assertions of a module, and removes what nothing needs then."""
    graphs = [module.graph, *(module.functions[name] for name in module.functions)]
    reports = [node for graph in graphs for node in graph if node.op in SILENT + FORWARDING]
    if not reports:
        return
    prints = [node for node in reports if node.op != "Assert"]
    counts = Counter(node.op for node in prints if not STUCK.search(node.name))
    if counts:
        told = ", ".join("%d %s" % (count, op) for op, count in sorted(counts.items()))
        lines.once("the compiled step does not print: it leaves out %s" % told)
    if len(prints) > sum(counts.values()):
        lines.once("the compiled step does not say that steps are skipped in a row at the smallest loss scale")
    looped = [node for node in reports if node.graph is module.graph and frames(module.graph).get(node)]
    anchors = {node: _anchors(node) for node in looped if node.op in SILENT and not node.controls}
    for node in reports:
        silence(node)
        if node in anchors:
            node.set_controls(anchors[node])
    for body in dict.fromkeys(node.graph for node in reports):
        if isinstance(body, Function):
            _prune(body)
    dead_control_dependencies.keep_needed(module.graph)


def silence(node: Node) -> bool:
    """Makes a print or assertion an Identity or NoOp; returns whether it was one."""
    if node.op in FORWARDING:
        forward(node)
    elif node.op in SILENT:
        _replace(node, "NoOp", 0)
    else:
        return False
    return True


def forward(node: Node) -> None:
    """Makes a node an Identity of its first input."""
    dtype = node.attrs["T"]
    _replace(node, "Identity", 1)
    node.attrs["T"] = dtype


def _replace(node: Node, op: str, count: int) -> None:
    """Makes a node another op of its first inputs, without attributes."""
    node.set_op(op)
    node.set_inputs(node.inputs[:count])
    for name in node.attrs:
        del node.attrs[name]


def _anchors(report: Node) -> list[Node]:
    """What a report that would wait for nothing waits for: its first input, or what that text is made of."""
    return [node for node in order.ancestors([report.inputs[0].node], _makes_text) if not _makes_text(node)]


def _makes_text(node: Node) -> bool:
    """Whether a node makes text, or hands it on."""
    return node.op in TEXTS or STRING in [value for _, value in node.attrs.items() if isinstance(value, DType)]


def _prune(body: Function) -> None:
    """Removes the nodes of a body that neither its results nor its stateful ops need."""
    known = body.module.definition
    definitions = {node: None if node.op in body.module.functions else known(node.op) for node in body}
    acting = [node for node, definition in definitions.items() if definition is None or definition.is_stateful]
    results = [value.node for value in body.results.values()]
    body.keep(order.ancestors([*body.arguments, *results, *body.effects.values(), *acting]))
