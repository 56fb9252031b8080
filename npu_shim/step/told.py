"""What is told to a step that the interpreter cannot know, and is asked for in a refusal: as little as will do.

    the last value of a loop's counter    which `control_flow.counted` asks for
    how many segments there are           of a sum over segments, which has as many rows as its last id says
    the value of a tensor                 that a rule wants to know

The session computes it of what is fed, in front of the step, and each value has a program of its own.
"""

from __future__ import annotations

from typing import Any, Mapping, Sequence

from npu_shim.step.graph import Node, Source
from npu_shim.step.rules import indexing
from npu_shim.step.rules.table import IDS, SEGMENTS
from npu_shim.step.values import ints, is_known


def can_ask(scope: Any) -> bool:
    """Whether it may ask for what stands in a scope: that of the graph itself, outside of loops."""
    return scope.run.told is not None and not scope.path and scope.serial is None


def attrs(scope: Any, node: Node, values: Sequence[Any]) -> Mapping[str, Any]:
    """The attributes of a node, and SEGMENTS if its ids are not known.

    Raises:
        Refusal: they are not known, and how many segments there are has not been told.
    """
    number = IDS.get(node.op)
    if number is None or is_known(values[number]):
        return node.attrs
    rows = _filled(scope, node.inputs[number])
    if rows is not None:
        return {**node.attrs, SEGMENTS: rows}
    told = scope.run.told or {}
    if node.name in told:
        return {**node.attrs, SEGMENTS: told[node.name]}
    alike = (name for name, other in scope.nodes.items() if other.op in IDS and name not in told)
    why = "how many segments there are had to be known when the step is traced"
    raise scope.refusal(node, why, scope.feeds_behind(node.inputs[number][0]), alike if can_ask(scope) else ())


def _filled(scope: Any, ids: Source) -> int | None:
    """How many rows a sparse tensor has of which ids are the rows, where each row has an element; else None."""
    column = scope.nodes[ids[0]]
    while column.op in ("Cast", "Identity"):
        column = scope.nodes[column.inputs[0][0]]
    if column.op != "StridedSlice":
        return None
    (name, output), *limits = column.inputs
    filled, limits = scope.nodes[name], [scope.value(scope.raw(limit)) for limit in limits]
    if filled.op != "SparseFillEmptyRows" or output or not is_known(*limits):
        return None
    shape = scope.value(scope.raw(filled.inputs[2]))
    is_first = indexing.index_of(column.attrs, *limits) == (slice(None, None, 1), 0)
    return ints(shape)[0] if is_first and is_known(shape) else None


def asked(scope: Any, node: Node, source: Source) -> list[str]:
    """The tensor that a node wants to know, as TensorFlow names it, if it may ask: on no conditional's side."""
    return ["%s:%d" % source] if can_ask(scope) and not scope.guard(node.name) and not scope.decided else []


def known(scope: Any, node: Node, value: Any) -> Any:
    """What a node gives, where values that are told stand for its outputs."""
    if not scope.run.told or scope.path or scope.serial is not None:
        return value
    outputs = value if type(value) is tuple else (value,)
    names = ["%s:%d" % (node.name, number) for number in range(len(outputs))]
    parts = tuple(scope.run.told.get(name, part) for name, part in zip(names, outputs))
    return parts if type(value) is tuple else parts[0]
