"""Sums over segments by ids: how many segments there are is the last id plus 1, which may be told.

Where ids are data the session computes that number first, of the ids alone, and each number has a program of its own.
"""

from __future__ import annotations

from typing import Any, Mapping, Sequence

from npu_shim.step.graph import Node
from npu_shim.step.rules.table import IDS, SEGMENTS
from npu_shim.step.values import is_known


def attrs(scope: Any, node: Node, values: Sequence[Any]) -> Mapping[str, Any]:
    """The attributes of a node, and SEGMENTS if its ids are not known.

    Raises:
        Refusal: they are not known, and nobody has been asked how many segments there are.
    """
    number = IDS.get(node.op)
    if number is None or is_known(values[number]):
        return node.attrs
    told = scope.run.counted or {}
    if node.name in told:
        return {**node.attrs, SEGMENTS: told[node.name]}
    is_told = scope.run.counted is not None and not scope.path and scope.serial is None
    alike = [name for name, other in scope.nodes.items() if other.op in IDS and name not in told] if is_told else []
    why = "how many segments there are had to be known when the step is traced"
    raise scope.refusal(node, why, scope.feeds_behind(node.inputs[number][0]), alike)
