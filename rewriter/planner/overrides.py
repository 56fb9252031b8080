"""What a user asks of single ops, above all lists and modes: dtypes by node name or by op type.

One dtype for all inputs and outputs of a slot is the dtype that it gets. Low inputs and float32 outputs mean rounded
inputs and float32 arithmetic. What the op's type attributes cannot express is an error.
"""

from dataclasses import dataclass
from typing import Mapping, Optional, Set, Tuple

from ..errors import PlanError
from ..graph.graph_view import Node
from ..tables.dtypes import FLOAT32, FLOATS, LOW
from ..tables.dtypes import name as dtype_name

Dtypes = Tuple[Optional[int], ...]


@dataclass(frozen=True)
class Override:
    """Dtype numbers asked for by input and output number, None or missing where left open; `source` is who asks."""

    inputs: Dtypes
    outputs: Dtypes
    source: str


@dataclass(frozen=True)
class Overrides:
    """Overrides by node name, which win, and by TensorFlow op type."""

    by_name: Mapping[str, Override]
    by_op: Mapping[str, Override]

    def of(self, node: Node) -> Optional[Override]:
        """What is asked of a node, or None."""
        return self.by_name.get(node.name) or self.by_op.get(node.op)


NO_OVERRIDES = Overrides({}, {})


def asked_of_slot(override: Override, node: Node, k: int) -> Optional[Tuple[int, bool]]:
    """What an override means for slot k of a node.

    Returns:
        (dtype number that the slot gets, whether its inputs are rounded to the low dtype first), or None where the
        override leaves the slot open.

    Raises:
        PlanError: the op's type attributes cannot express it.
    """
    into = _asked(override.inputs, node.layout.inputs, k)
    out = _asked(override.outputs, node.layout.outputs, k)
    if not into and not out:
        return None
    was = node.dtypes[k]
    both = into | out
    if len(both) == 1:
        [dtype] = both
        if dtype == was or (dtype in FLOATS and was in FLOATS):
            return dtype, False
    elif len(into) == 1 and into <= LOW and out == {FLOAT32}:
        return FLOAT32, True
    wanted = ", ".join("inputs %s" % dtype_name(d) for d in sorted(into))
    wanted += "".join(" outputs %s" % dtype_name(d) for d in sorted(out))
    raise PlanError(
        "%s asks '%s' (op %s) for %s, which the op does not support: its type attribute %s, now %s, gives its inputs "
        "and outputs one dtype"
        % (override.source, node.name, node.op, wanted, node.layout.slots[k].attr, dtype_name(was))
    )


def _asked(dtypes: Dtypes, ports: Tuple[int, ...], k: int) -> Set[int]:
    return {dtype for dtype, slot in zip(dtypes, ports) if dtype is not None and slot == k}
