"""Assertions about what is known before the step, and checks of what it computes. No TensorFlow.

    tf.Assert(ok, [x]), x float:    ok -> Switch -> Assert(x) ..^..> Identity -> Merge ..^..> the step

TensorFlow puts an assertion about floats behind a Switch by itself. A session runs none of the conditional's nodes by
name, but the Merge at its end, which waits for the assertion.

A tf.check_numerics on the way to an update is a host op: it fails before anything is written. One that only results
pass is a report of the last program, which the session runs behind it:

    loss -> CheckNumerics -> fetch        becomes        loss -> Identity -> fetch  |  loss -> CheckNumerics
"""

from __future__ import annotations

from dataclasses import replace
from typing import Iterable, Mapping

from npu_shim.engine.partition import conditionals
from npu_shim.engine.partition import nodes as walks
from npu_shim.engine.partition.nodes import Node
from npu_shim.rewriter.graph.arguments import source_of

PASSES_ON = ("Identity", "Switch")


def ends(nodes: Mapping[str, Node], depths: Mapping[str, int]) -> dict[str, str]:
    """Returns name of an assertion -> name of the node at the end of its conditional.

    Left out are assertions in loops, and those whose conditional depends on a product or on what is written.

    Args:
        nodes: name -> Node, for all nodes that a run needs.
        depths: as `nodes.depths` returns them.
    """
    inside = [name for name, node in nodes.items() if node.op == "Assert" and depths[name]]
    consumers = walks.consumers_of(nodes) if inside else {}
    ends = {}
    for name in inside:
        behind = conditionals.first_outside(name, consumers, depths)
        needed = walks.upstream(nodes, behind)
        if len(behind) == 1 and not any(nodes[n].essential or "Enter" in nodes[n].op for n in needed):
            ends[name] = min(behind)
    return ends


def conditions(nodes: Mapping[str, Node], names: Iterable[str], depths: Mapping[str, int]) -> dict[str, str]:
    """Returns name of an assertion -> the tensor that it asserts, where the session knows it before the step.

    Its data, which its message would show, may be a result of the step. One in a conditional fires in one branch only,
    if at all. Left out are conditions that depend on a product, on a variable, on what is written, or on a loop.

    Args:
        nodes: name -> Node, for all nodes that a run needs.
        names: of assertions.
        depths: as `nodes.depths` returns them.
    """
    conditions = {}
    for name in names:
        tensor = nodes[name].first
        while source_of(tensor) in nodes and nodes[source_of(tensor)].op in PASSES_ON:
            tensor = nodes[source_of(tensor)].first
        # what is no node is fed by the user
        needed = walks.upstream(nodes, [source_of(tensor)]) if source_of(tensor) in nodes else ()
        if not any(depths[n] or nodes[n].essential or nodes[n].variable for n in needed):
            conditions[name] = tensor
    return conditions


def with_checks_of_results(nodes: Mapping[str, Node], depths: Mapping[str, int]) -> dict[str, Node]:
    """Returns the nodes, where those that check results are reports; checks in loops and conditionals stay host ops.

    Args:
        nodes: name -> Node, for all nodes that a run needs.
        depths: as `nodes.depths` returns them.
    """
    checks = [node for node in nodes.values() if node.checks and not depths[node.name]]
    essential = [node.name for node in nodes.values() if node.essential and not node.host] if checks else ()
    before = walks.upstream(nodes, essential)
    late = [node for node in checks if node.name not in before]
    return {**nodes, **{node.name: replace(node, host=None, report=True, forwards=True) for node in late}}
