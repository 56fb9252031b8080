"""Which nodes may write to a variable, and which ops are worth skipping on a side that is not taken."""

from __future__ import annotations

from typing import Collection, Mapping, Sequence

from npu_shim.step import platforms
from npu_shim.step.graph import Callee, Graph, Node
from npu_shim.step.ops import LIGHT, TABLE
from npu_shim.step.rules.table import Effect, Rule, Update

STATE_OPS = ("Assign", "Resource", "ReadVariableOp")  # how the ops begin that read or write variables and nothing else


def among(functions: Mapping[str, Graph]) -> frozenset[str]:
    """The names of functions that may write to a variable, themselves or in what they call.

    Args:
        functions: by name.
    """
    writers = frozenset[str]()
    for _ in functions:
        more = (
            name for name, body in functions.items()
            if name not in writers and any(writes(node, functions, writers) for node in body.nodes.values())
        )  # fmt: skip
        writers, before = writers.union(more), writers
        if writers == before:
            break
    return writers


def writes(node: Node, functions: Collection[str], writers: Collection[str]) -> Sequence[int]:
    """The numbers of a node's inputs through which it may write to a variable.

    Args:
        node: a Node.
        functions: the names of the program's functions.
        writers: those that may write.
    """
    row = TABLE.get(node.op)
    if type(row) is Rule:
        return ()
    if isinstance(row, Update):
        return range(row.handles)
    known = _called(node, functions) if functions else []
    may = any(name in writers for name in known) if known else isinstance(row, Effect) and row.writes
    return range(len(node.inputs)) if may else ()


def _called(node: Node, functions: Collection[str]) -> list[str]:
    called = [node.op, *(value.name for value in node.attrs.values() if isinstance(value, Callee))]
    return [name for name in called if name in functions]


def is_light(node: Node) -> bool:
    """Whether a node is of an op that is no call, and has no effect but on variables; none is on CPUs.

    They have no kernels of 16 bits that an update could be part of, and choosing takes longer than a branch: 8 % of an
    LSTM's step.
    """
    if platforms.is_cpu():
        return False
    row = TABLE.get(node.op)
    calls = any(isinstance(value, Callee) for value in node.attrs.values())
    return not calls and (node.op in LIGHT or isinstance(row, (Rule, Update)) or node.op.startswith(STATE_OPS))


def is_costly(op: str) -> bool:
    """Whether an op is worth skipping where its result is not taken: XLA does not compute it in passing."""
    return op not in LIGHT
