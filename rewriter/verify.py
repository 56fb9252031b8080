"""Checks a rewritten graph against the one it came from, after every rewrite: a wrong cast would be silent."""

from typing import Callable, Iterator, List, Tuple

from .dtypes import FLOATS, REF
from .dtypes import name as dtype_name
from .errors import VerifyError
from .graph_view import GraphView, Node
from .kernel_table import KernelTable
from .ties import find_ties


def verify(before: GraphView, after: GraphView, kernels: KernelTable) -> None:
    """Holds the rewritten graph `after` against the contract.

    Raises:
        VerifyError: with every violation that was found.
    """
    violations = [violation for check in CHECKS for violation in check(before, after, kernels)]
    if violations:
        raise VerifyError(violations)


def names_are_unique(_: GraphView, after: GraphView, __: KernelTable) -> Iterator[str]:
    """No two nodes have one name."""
    if len(after.positions()) != len(after.nodes):
        yield "two nodes have one name"


def inputs_agree(_: GraphView, after: GraphView, __: KernelTable) -> Iterator[str]:
    """Each input gets the dtype it wants."""
    nodes = after.nodes
    for node in nodes:
        for number, port in enumerate(node.inputs):
            slot = node.layout.inputs[number]
            want = node.dtypes[slot] if slot >= 0 else ~slot
            producer = nodes[port.node]
            slot = producer.layout.outputs[port.port]
            have = producer.dtypes[slot] if slot >= 0 else ~slot
            if want != have and want % REF != have % REF:
                yield "input %d of '%s' wants %s and gets %s" % (number, node.name, dtype_name(want), dtype_name(have))


def interface_stays(before: GraphView, after: GraphView, _: KernelTable) -> Iterator[str]:
    """What is fed or fetched has the name and dtypes it had."""
    position = after.positions()
    fixed = set(before.preserved) | {port.node for port in before.fed}
    for node in (before.nodes[p] for p in fixed):
        now = after.nodes[position[node.name]] if node.name in position else None
        if now is None or _outputs(now) != _outputs(node):
            yield "'%s' is fed or fetched and has changed" % node.name


def variables_stay(before: GraphView, after: GraphView, _: KernelTable) -> Iterator[str]:
    """No node that gives or takes a reference or a resource changes its dtypes."""
    position = after.positions()
    for node in before.nodes:
        if node.layout.ref_outputs or node.layout.ref_inputs:
            now = position.get(node.name)
            if now is None or after.nodes[now].dtypes != node.dtypes:
                yield "'%s' holds or changes a variable and has changed" % node.name


def only_floats_change(before: GraphView, after: GraphView, kernels: KernelTable) -> Iterator[str]:
    """A changed slot goes from one floating dtype to another that the op admits and a kernel runs."""
    old = {node.name: node for node in before.nodes}
    for node in after.nodes:
        was = old.get(node.name)
        if was is None or was.op == "Cast" or was.dtypes == node.dtypes or was.layout.slots != node.layout.slots:
            continue
        for slot, a, b, admits in zip(node.layout.slots, was.dtypes, node.dtypes, node.layout.admits):
            if a != b and (a not in FLOATS or b not in FLOATS or (admits and b not in admits)):
                yield "%s of '%s' went from %s to %s" % (slot.attr, node.name, dtype_name(a), dtype_name(b))
        if not kernels.runs(node.layout, node.device, node.dtypes) and kernels.runs(was.layout, was.device, was.dtypes):
            yield "no kernel runs '%s' (%s) in its new dtypes" % (node.name, node.op)


def ties_agree(_: GraphView, after: GraphView, __: KernelTable) -> Iterator[str]:
    """All members of a loop variable or container have one dtype."""
    for tie in find_ties(after):
        members = [after.nodes[position] for position, _ in tie.members]
        if len({node.dtypes[0] for node in members}) > 1:
            yield "'%s' and what it is tied to have several dtypes" % members[0].name


def _outputs(node: Node) -> List[int]:
    return [node.output_dtype(number) for number in range(len(node.layout.outputs))]


Check = Callable[[GraphView, GraphView, KernelTable], Iterator[str]]
CHECKS: Tuple[Check, ...] = (
    names_are_unique, inputs_agree, interface_stays, variables_stay, only_floats_change, ties_agree
)  # fmt: skip
