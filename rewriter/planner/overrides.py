"""The user's requests for single ops, which override lists and modes: dtypes by node name or by op type.

If a request gives all inputs and outputs of a slot one dtype, the slot gets that dtype. Low inputs with float32 outputs
mean rounded inputs and float32 arithmetic. A request that the op's type attributes cannot express is an error.
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
    """Requested dtype numbers by input and output number, None or missing if unspecified; `source` is the requester.

    `replaced` says that they were requested of the op that this one replaces, which may have had other inputs: a float
    dtype for what is an integer now is passed over.
    """

    inputs: Dtypes
    outputs: Dtypes
    source: str
    replaced: bool = False


@dataclass(frozen=True)
class Overrides:
    """Overrides by node name, which win, and by TensorFlow op type."""

    by_name: Mapping[str, Override]
    by_op: Mapping[str, Override]

    def of(self, node: Node) -> Optional[Override]:
        """The request for a node, or None."""
        return self.by_name.get(node.name) or self.by_op.get(node.op)


NO_OVERRIDES = Overrides({}, {})


def asked_of_slot(override: Override, node: Node, k: int) -> Optional[Tuple[int, bool]]:
    """Applies an override to slot k of a node.

    Returns:
        (dtype number of the slot, whether its inputs are rounded to the low dtype first), or None if the override
        leaves the slot unspecified.

    Raises:
        PlanError: the op's type attributes cannot express it.
    """
    into = _requested(override.inputs, node.layout.inputs, k)
    out = _requested(override.outputs, node.layout.outputs, k)
    if not into and not out:
        return None
    was = node.dtypes[k]
    both = into | out
    if override.replaced and was not in FLOATS and both <= FLOATS:
        return None
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


def _requested(dtypes: Dtypes, ports: Tuple[int, ...], k: int) -> Set[int]:
    return {dtype for dtype, slot in zip(dtypes, ports) if dtype is not None and slot == k}
