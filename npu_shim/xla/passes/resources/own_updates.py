"""Orders updates that set a variable to something made of its own value, where the script orders them in no way.

One AdamOptimizer whose minimize is called twice multiplies its beta powers once in each train_op, and a script may run
both in one run:

    Assign(v, Mul(v, b))   Assign(v, Mul(v, b))     becomes     the second Mul waits for the first Assign

A session runs each product just before its assignment, and so multiplies twice unless its threads meet. A compiled step
would read v once, at its beginning, and lose an update every time.
"""

from __future__ import annotations

import collections
from typing import Any

from npu_shim.rewriter.analysis import branches, order
from npu_shim.rewriter.analysis.frames import frames
from npu_shim.rewriter.errors import PlanError
from npu_shim.rewriter.graph.walks import behind
from npu_shim.rewriter.ir.graph import Node, Value
from npu_shim.rewriter.ir.module import Module
from npu_shim.xla.passes.resources.late_reads import VARIABLES

ASSIGNS = frozenset(["Assign", "AssignVariableOp"])
HANDS_ON = ("Identity", "RefIdentity", "Switch", "RefSwitch")
READ = "ReadVariableOp"


def sequence(module: Module, context: Any = None) -> None:
    """Has each such update of a variable follow the one before it, in the order of the graph.

    Args:
        module: a step's, with v1 control flow.
        context: not used.

    Raises:
        PlanError: one is in a conditional or a loop, which this does not order; the error names both.
    """
    updates = collections.defaultdict(list)
    for node in module.graph:
        variable = _updated(node)
        if variable is not None:
            updates[variable].append(node)
    several = {variable: nodes for variable, nodes in updates.items() if len(nodes) > 1}
    if several:
        inside, loops = branches.branches(module.graph), frames(module.graph)
        for variable, nodes in several.items():
            for first, second in zip(nodes, nodes[1:]):
                _order(variable, first, second, inside, loops)


def _updated(node: Node) -> Node | None:
    """The variable that a node sets to what an op makes of its value; None for another node."""
    if node.op not in ASSIGNS:
        return None
    variable: Node = behind(node.inputs[0], HANDS_ON).node
    reads = any(_read(value) is variable for value in node.inputs[1].node.inputs)
    return variable if reads and variable.op in (*VARIABLES, "VarHandleOp") else None


def _read(value: Value) -> Node:
    """The variable whose value a tensor is, or the node that computes it."""
    node: Node = behind(value, HANDS_ON).node
    return behind(node.inputs[0], HANDS_ON).node if node.op == READ else node


def _order(variable: Node, first: Node, second: Node, inside: Any, loops: Any) -> None:
    """Has an update wait for another one, unless one of them follows the other, or excludes it."""
    makes = second.inputs[1].node
    if _excludes(inside.get(first, frozenset()), inside.get(second, frozenset())):
        return
    if makes in order.descendants([first]) or first.inputs[1].node in order.descendants([second]):
        return
    is_open = any(inside.get(node) or loops.get(node) for node in (first, second))
    if is_open or first in order.descendants([makes]):
        raise PlanError(
            "variable '%s' is set from its own value by '%s' and by '%s', in no order, and one of them is in a "
            "conditional or a loop: run them one after another, or the step in a session"
            % (variable.name, first.name, second.name)
        )
    makes.set_controls([*makes.controls, first])
    for number, value in enumerate(makes.inputs):
        read = behind(value).node
        if read.op == READ and _read(value) is variable:  # a reference is read when its consumer runs
            name, attrs = makes.graph.free_name(read.name + "/again"), dict(read.attrs.items())
            again = makes.graph.add(name, READ, read.inputs, [*read.controls, first], attrs, read.device, before=makes)
            makes.set_input(number, again.value)


def _excludes(one: Any, other: Any) -> bool:
    """Whether two nodes are on different sides of a conditional."""
    sides = dict(one)
    return any(decides in sides and sides[decides] != side for decides, side in other)
