"""Orders a variable's readers before its writers where the graph leaves their order open.

A session runs `learning_rate(global_step)` and `global_step.assign_add(1)` in either order if no edge orders them. Here
a read that waits for no write sees the value from before the step.
"""

from __future__ import annotations

import collections
from operator import attrgetter
from typing import Any, Container

from npu_shim.rewriter.analysis.writes import writes
from npu_shim.rewriter.ir.graph import Graph, Node
from npu_shim.rewriter.ir.module import Module

NAME = attrgetter("name")


def order_reads(module: Module, context: Any = None) -> None:
    """Adds control edges from readers to writers in a module of functional control flow and resource variables."""
    graph = module.graph
    taking = {user for node in graph if node.op == "VarHandleOp" for user in node.users()}
    ahead = (source for node in graph if node in taking for source in node.sources())
    handles = dict.fromkeys(source for source in ahead if source.op == "VarHandleOp")
    users = [{user: writes(user, handle) for user in sorted(set(handle.users()), key=NAME)} for handle in handles]
    late = {node for used in users for node, is_writer in used.items() if is_writer}
    place = {node: number for number, node in enumerate(_order(graph, late))} if late else {}
    for used in users:
        for writer in used:
            if used[writer]:
                earlier = [node for node in used if not used[node] and place[node] < place[writer]]
                if not set(earlier) <= set(writer.controls):
                    writer.set_controls([*writer.controls, *earlier])


def _order(graph: Graph, late: Container[Node]) -> list[Node]:
    """Topological order of all nodes, with those of `late` as late as possible."""
    open_inputs = {node: _count(node) for node in sorted(graph, key=NAME)}
    ready: collections.deque[Node] = collections.deque()
    last: collections.deque[Node] = collections.deque()
    for node, count in open_inputs.items():
        if not count:
            (last if node in late else ready).append(node)
    order = []
    while ready or last:
        node = (ready or last).popleft()
        order.append(node)
        users = set(node.users())
        for user in sorted(users, key=NAME) if len(users) > 1 else users:
            open_inputs[user] -= 1
            if not open_inputs[user]:
                (last if user in late else ready).append(user)
    return order


def _count(node: Node) -> int:
    """How many nodes a node takes or waits for."""
    most = len(node.inputs) + len(node.controls)
    return len(set(node.sources())) if most > 1 else most
