"""Conditionals of version 1 that have no effects but those of host ops, which the program waits for in no way.

    record = step % 100 == 0        tf.cond(record, lambda: WriteScalarSummary(writer, step, "loss", loss), ..)

The session runs such a conditional as a whole behind the program, which gives it the predicate and the values. What a
variable holds is read in front of the step's updates: by the program, too, where the conditional reads a handle itself.
No TensorFlow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import AbstractSet, Collection, Mapping

from npu_shim.engine.partition import nodes as walks
from npu_shim.engine.partition.nodes import Node
from npu_shim.rewriter.graph.arguments import source_of, tensor_of
from npu_shim.rewriter.graph.walks import reached

SWITCHES, MERGES = ("Switch", "RefSwitch"), ("Merge", "RefMerge")
ENTERS = ("Enter", "RefEnter")
REFERENCES = ("VariableV2", "Variable")
READ, HANDLE, WRITER = "ReadVariableOp", "VarHandleOp", "Write"  # the last one begins the types of ops of summaries


@dataclass(frozen=True)
class Conditional:
    """A conditional, or several in one another, around a host op.

    Attributes:
        end: name of the node behind it.
        inside: names of the nodes in it that the session runs.
        given: tensor in it that reads a variable -> tensor around it that is what the variable held before the step.
        unused: names of the nodes in it that do not run, since these tensors are given.
    """

    end: str
    inside: frozenset[str]
    given: Mapping[str, str]
    unused: frozenset[str]


def around_effects(
    nodes: Mapping[str, Node], depths: Mapping[str, int], before: AbstractSet[str]
) -> dict[str, Conditional]:
    """Returns name of a host op with an effect -> the Conditional around it, where the session can run it at the end.

    Left out are those that hold a part of the program, in loops too, and those whose results others take.

    Args:
        nodes: name -> Node, for all nodes that a run needs.
        depths: as `nodes.depths` returns them.
        before: names of the nodes that the program needs.
    """
    hosts = [n.name for n in nodes.values() if n.host and depths[n.name] and not (n.shared or n.report or n.writes)]
    consumers = walks.consumers_of(nodes) if hosts else {}
    conditionals = {name: _around(name, nodes, depths, consumers) for name in hosts}
    return {
        name: conditional
        for name, conditional in conditionals.items()
        if conditional is not None and before.isdisjoint({conditional.end, *conditional.inside})
    }


def first_outside(name: str, consumers: Mapping[str, list[str]], depths: Mapping[str, int]) -> set[str]:
    """The first nodes behind a node that are in no conditional."""
    behind = reached([name], lambda inner: consumers.get(inner, ()) if depths[inner] or inner == name else ())
    return {inner for inner in behind if not depths[inner] and inner != name}


def _around(
    name: str, nodes: Mapping[str, Node], depths: Mapping[str, int], consumers: Mapping[str, list[str]]
) -> Conditional | None:
    ends = first_outside(name, consumers, depths)
    needed = reached(ends, lambda inner: map(source_of, nodes[inner].inputs) if depths[inner] or inner in ends else ())
    inside = frozenset(inner for inner in needed if depths[inner])
    leaves = any(consumer not in inside | ends for inner in inside for consumer in consumers.get(inner, ()))
    wrong = any(nodes[inner].essential or nodes[inner].op in ENTERS for inner in inside)
    if leaves or wrong or [nodes[end].op in MERGES for end in ends] != [True]:
        return None
    handles = {inner for inner in inside if any(_is_of(text, HANDLE, nodes) for text in nodes[inner].inputs)}
    if any(_is_of(text, op, nodes) for inner in inside for text in nodes[inner].inputs for op in REFERENCES):
        return None
    inside |= {source for source in _predicates(inside, nodes) if inside.issuperset(consumers[source])}
    given = _given(handles, nodes)
    if given is None:
        return None
    unused = frozenset([*handles, *map(source_of, given)])
    return Conditional(min(ends), inside - unused, given, unused)


def _predicates(inside: Collection[str], nodes: Mapping[str, Node]) -> set[str]:
    """Names of the Identity nodes by which predicates come into a conditional: no tensor of theirs can be fetched."""
    deciding = {source_of(nodes[name].inputs[1]) for name in inside if nodes[name].op in SWITCHES}
    return {name for name in deciding if name in nodes and nodes[name].op == "Identity"}


def _is_of(text: str, op: str, nodes: Mapping[str, Node]) -> bool:
    return text[0] != "^" and source_of(text) in nodes and nodes[source_of(text)].op == op


def _given(handles: Collection[str], nodes: Mapping[str, Node]) -> dict[str, str] | None:
    """What reads variables in a conditional -> what reads them around it and waits for nothing; None if nothing does.

    What is given to a node in a conditional is there on either side: only ops of summaries may come of it, which take
    their writer through a Switch.

    Args:
        handles: names of the Switches by which handles come into it.
        nodes: name -> Node.
    """
    given = {}
    consumers = walks.consumers_of(nodes, controls=False) if handles else {}
    for switch in handles:
        same = [n.name for n in nodes.values() if n.op == READ and [*map(tensor_of, n.inputs)] == [nodes[switch].first]]
        for name in consumers.get(switch, ()):
            behind = [nodes[inner] for inner in reached([name], lambda inner: consumers.get(inner, ()))][1:]
            leaves = any(n.op in MERGES or not (n.shared or n.op.startswith(WRITER)) for n in behind)
            if leaves or not same or nodes[name].op != READ or len(nodes[name].inputs) > 1:
                return None
            given[name + ":0"] = min(same) + ":0"
    return given
