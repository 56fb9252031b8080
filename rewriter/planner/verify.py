"""Verifies every rewritten graph against the original: a wrong cast would be silent."""

from typing import (
    Callable,
    Dict,
    FrozenSet,
    Iterable,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Set,
    Tuple,
)

from ..errors import VerifyError
from ..graph.graph_view import GraphView, Node, Port
from ..graph.kernel_table import KernelTable
from ..graph.ties import CONTAINERS, GRADIENT, RESOURCE, find_ties
from ..tables.dtypes import FLOATS, LOW, REF
from ..tables.dtypes import name as dtype_name
from ..tables.slow_kernels import EXACT
from . import edges
from .decisions import Plan

Slots = FrozenSet[int]
NOTHING: Mapping[int, Slots] = {}


def verify(
    before: GraphView,
    after: GraphView,
    kernels: KernelTable,
    emulated: Mapping[int, Slots] = NOTHING,
    plan: Optional[Plan] = None,
) -> None:
    """Checks the rewritten graph `after` against the contract.

    Args:
        before: the original graph.
        after: the rewritten graph: the nodes of `before` in their order, then the added ones.
        kernels: what runs where.
        emulated: positions of the nodes that run in float32 for a low dtype -> which of their slots do.
        plan: what was to be changed; without it only what any plan must keep is checked.

    Raises:
        VerifyError: with every violation.
    """
    nodes = after.nodes
    if len(nodes) < len(before.nodes):
        raise VerifyError(["%d nodes are missing" % (len(before.nodes) - len(nodes))])
    altered = [position for position, (was, now) in enumerate(zip(before.nodes, nodes)) if was is not now]
    changed = {*altered, *range(len(before.nodes), len(nodes))}
    missing = [*_missing_outputs(before.nodes, nodes, changed)]
    if missing:
        raise VerifyError(missing)
    rewrite = Rewrite(before, after, kernels, after.positions(), changed, emulated)
    graphs = edges.compared(before, after, altered, rewrite.position, plan)
    violations = [violation for check in CHECKS for violation in check(rewrite)]
    violations += [*edges.nodes_stay(graphs, plan), *edges.edges_stay(graphs)]
    violations += [] if plan is None else edges.plan_is_followed(graphs, plan)
    if violations:
        raise VerifyError(violations)


def _missing_outputs(before: Sequence[Node], nodes: Sequence[Node], changed: Iterable[int]) -> Iterator[str]:
    """Outputs that a node no longer has, and inputs that name one which its op does not have."""
    for position in sorted(changed):
        node = nodes[position]
        if position < len(before) and len(node.layout.outputs) < len(before[position].layout.outputs):
            yield "'%s' (op %s) is gone; '%s' (op %s) is in its place" % (
                before[position].name, before[position].op, node.name, node.op
            )  # fmt: skip
        for number, (giver, output) in enumerate(node.inputs):
            if not 0 <= output < len(nodes[giver].layout.outputs):
                yield "input %d of '%s' is output %d of '%s'" % (number, node.name, output, nodes[giver].name)


class Rewrite(NamedTuple):
    """The subject of the checks: a graph before and after, the positions of names after it, the nodes that differ.

    `emulated`: positions of the nodes that run in float32 for a low dtype -> which of their slots do.
    """

    before: GraphView
    after: GraphView
    kernels: KernelTable
    position: Dict[str, int]
    changed: Set[int]
    emulated: Mapping[int, Slots] = NOTHING


def names_are_unique(rewrite: Rewrite) -> Iterator[str]:
    """No two nodes have one name."""
    if len(rewrite.position) != len(rewrite.after.nodes):
        yield "two nodes have one name"


def inputs_agree(rewrite: Rewrite) -> Iterator[str]:
    """Each input has the dtype its op expects; edges between unchanged nodes are not checked."""
    nodes, changed, readers = rewrite.after.nodes, rewrite.changed, rewrite.before.consumers()
    # an unchanged node reads what it read before
    for position in sorted(changed.union(r for p in changed if p < len(readers) for r in readers[p])):
        node, same = nodes[position], position not in changed
        for number, port in enumerate(node.inputs):
            if same and port.node not in changed:
                continue
            want, have = node.input_dtype(number), nodes[port.node].output_dtype(port.port)
            if want != have and want % REF != have % REF:
                yield "input %d of '%s' wants %s and gets %s" % (number, node.name, dtype_name(want), dtype_name(have))


def interface_stays(rewrite: Rewrite) -> Iterator[str]:
    """Fed and fetched nodes keep their names and dtypes."""
    before, after, position = rewrite.before, rewrite.after, rewrite.position
    fixed = set(before.preserved) | {port.node for port in before.fed}
    for node in (before.nodes[p] for p in fixed):
        now = after.nodes[position[node.name]] if node.name in position else None
        if now is None or _outputs(now) != _outputs(node):
            yield "'%s' is fed or fetched and has changed" % node.name


def variables_stay(rewrite: Rewrite) -> Iterator[str]:
    """No node that holds, returns or takes a variable, by reference or as a resource, changes its dtypes."""
    before, after, position = rewrite.before, rewrite.after, rewrite.position
    for node in (before.nodes[p] for p in rewrite.changed if p < len(before.nodes)):
        if node.layout.ref_outputs or node.layout.ref_inputs or _takes_a_variable(node):
            now = position.get(node.name)
            if now is None or after.nodes[now].dtypes != node.dtypes:
                yield "'%s' holds or changes a variable and has changed" % node.name


def only_floats_change(rewrite: Rewrite) -> Iterator[str]:
    """A changed slot goes from one floating dtype to another that the op admits and a kernel runs."""
    before, kernels = rewrite.before.nodes, rewrite.kernels
    old = {before[p].name: before[p] for p in rewrite.changed if p < len(before)}
    for node in (rewrite.after.nodes[p] for p in rewrite.changed):
        was = old.get(node.name)
        if was is None or was.op == "Cast" or was.dtypes == node.dtypes or was.layout.slots != node.layout.slots:
            continue
        for slot, a, b, admits in zip(node.layout.slots, was.dtypes, node.dtypes, node.layout.admits):
            if a != b and (a not in FLOATS or b not in FLOATS or (admits and b not in admits)):
                yield "%s of '%s' went from %s to %s" % (slot.attr, node.name, dtype_name(a), dtype_name(b))
        if not kernels.runs(node.layout, node.device, node.dtypes) and kernels.runs(was.layout, was.device, was.dtypes):
            yield "no kernel runs '%s' (%s) in its new dtypes" % (node.name, node.op)


def ties_agree(rewrite: Rewrite) -> Iterator[str]:
    """All members of a loop variable or container have one dtype."""
    nodes = rewrite.after.nodes
    for tie in find_ties(rewrite.after):
        members = [nodes[position] for position, _ in tie.members]
        if len({node.dtypes[0] for node in members}) > 1:
            yield "'%s' and what it is tied to have several dtypes" % members[0].name


def _takes_a_variable(node: Node) -> bool:
    """Whether an op's definition has a resource that is not a container of tensors."""
    return ~RESOURCE in (*node.layout.inputs, *node.layout.outputs) and node.op not in CONTAINERS | {GRADIENT}


def rounded_stays_rounded(rewrite: Rewrite) -> Iterator[str]:
    """A node that computes in float32 for a low dtype reads values of that dtype; its readers see rounded ones."""
    nodes, emulated = rewrite.after.nodes, rewrite.emulated
    for position, slots in emulated.items():
        node = nodes[position]
        for number, port in enumerate(node.inputs):
            if node.layout.inputs[number] in slots and not _holds_low(rewrite, port):
                yield "input %d of '%s' is not rounded" % (number, node.name)
    for position, node in enumerate(nodes) if emulated else ():
        for number, port in enumerate(node.inputs):
            slots = emulated.get(port.node, frozenset())
            if nodes[port.node].layout.outputs[port.port] in slots and not _rounds(rewrite, position, port):
                yield "input %d of '%s' is the unrounded result of '%s'" % (number, node.name, nodes[port.node].name)


def _holds_low(rewrite: Rewrite, port: Port) -> bool:
    """Whether a float32 tensor holds values of a low dtype."""
    node = rewrite.after.nodes[port.node]
    if port.node in rewrite.emulated:
        return node.op in EXACT
    return node.op == "Cast" and node.input_dtype(0) in LOW


def _rounds(rewrite: Rewrite, position: int, port: Port) -> bool:
    """Whether a reader rounds a result, or only passes it on."""
    node = rewrite.after.nodes[position]
    return rewrite.after.nodes[port.node].op in EXACT or (node.op == "Cast" and node.output_dtype(0) in LOW)


def _outputs(node: Node) -> List[int]:
    return [node.output_dtype(number) for number in range(len(node.layout.outputs))]


Check = Callable[[Rewrite], Iterator[str]]
CHECKS: Tuple[Check, ...] = (
    names_are_unique, inputs_agree, interface_stays, variables_stay, only_floats_change, ties_agree,
    rounded_stays_rounded,
)  # fmt: skip
