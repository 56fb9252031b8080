"""The user's requests for single ops, which override lists and modes: dtypes by node name or by op type.

If a request gives all inputs and outputs of a slot one dtype, the slot gets that dtype. Low inputs with float32 outputs
mean rounded inputs and float32 arithmetic. A request that the op's type attributes cannot express is an error. So is
one by name for a node that no mode may change; one by type leaves such a node as it is, with a warning.
"""

from dataclasses import dataclass
from typing import Dict, List, Mapping, Optional, Set, Tuple

from ..errors import PlanError
from ..graph.emulation import gives_rounded
from ..graph.graph_view import Node
from ..tables.dtypes import FLOAT32, FLOATS, LOW
from ..tables.dtypes import name as dtype_name
from .decisions import Reason

Dtypes = Tuple[Optional[int], ...]
Left = Dict[str, Tuple[Node, str, Reason]]  # name -> node that stays as it is, the source of its request, and why


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

    def is_of_type(self, node: Node) -> bool:
        """Whether the request for a node is one for all nodes of its type."""
        return node.name not in self.by_name and node.op in self.by_op


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


def require_none(overrides: Overrides, node: Node, reason: Reason, left: Left) -> None:
    """Checks that no request would change a node that no mode may change; notes it in `left` if one of its type would.

    Raises:
        PlanError: a request for the node itself would; the error names its source, the node and the reason.
    """
    override = overrides.of(node)
    if override is None or not any(_changes(override, node, k) for k in range(len(node.dtypes))):
        return
    if not overrides.is_of_type(node):
        text = "%s: the dtypes of '%s' (op %s) cannot be changed: %s"
        raise PlanError(text % (override.source, node.name, node.op, reason.value))
    left[node.name] = node, override.source, reason


def _changes(override: Override, node: Node, k: int) -> bool:
    asked = asked_of_slot(override, node, k)
    if asked is None or asked == (node.dtypes[k], False):
        return False
    return asked[0] != node.rounded or not gives_rounded(node, k)


def warnings_of(left: Left) -> Tuple[str, ...]:
    """One line for each request for a type, and each reason, about the nodes that it leaves as they are."""
    groups: Dict[Tuple[str, str, str], List[str]] = {}
    for name, (node, source, reason) in left.items():
        groups.setdefault((source, node.op, reason.value), []).append(name)
    lines = []
    for (source, op, why), names in sorted(groups.items()):
        who = "'%s' (op %s) stays" % (min(names), op) if len(names) == 1 else (
            "'%s' and %d more (op %s) stay" % (min(names), len(names) - 1, op)
        )  # fmt: skip
        lines.append("%s: %s as written: %s" % (source, who, why))
    return tuple(lines)
