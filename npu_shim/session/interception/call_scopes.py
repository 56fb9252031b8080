"""Scopes around calls: the attributes that keep_dtype_scope and to_float give a call are copied to its inlined nodes.

A session's graph reaches NpuOptimizer with its functions inlined and its If and While lowered. The call is gone, and
its attributes with it. The inlined nodes are recognized by their names, and the call is found in the session's graph:

    with keep_dtype_scope(): y = f(x)      f: StatefulPartitionedCall, _keep_dtype      as it was built
                                           f/MatMul, f/Relu, Func/f/output/_3           as Grappler gives it
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

from npu_shim.rewriter.graph.graph_view import KEEP, TO_FLOAT
from npu_shim.rewriter.graphdef.functions import KINDS
from npu_shim.rewriter.graphdef.reading import KEEP_WITH_GRADIENTS, is_gradient_of
from npu_shim.rewriter.tf_internals import op_defs

_graphs = weakref.WeakValueDictionary()  # number of a session -> its tf.Graph
_running = threading.local()  # .graph: weak reference to the tf.Graph of the session that this thread runs


def register_graph(number: int, graph: Any) -> None:
    """Records the tf.Graph of a session: the rewrite may run in any thread, and in a server after other sessions'."""
    _graphs[number] = graph


def watch(graph: Any) -> None:
    """Records the tf.Graph that this thread is about to run, for sessions without a number."""
    _running.graph = weakref.ref(graph)


def built(number: int | None) -> dict[str, str]:
    """Returns name -> op of the nodes of a session's graph, as the script built it.

    Args:
        number: the session's, or None for the session that this thread runs.
    """
    return {op.name: op.type for op in _operations(number)}


def mark(graph_def: Any, number: int | None) -> None:
    """Copies the attributes of a call's scopes to the nodes that were inlined for the call.

    Args:
        graph_def: tf.compat.v1.GraphDef of what the session runs, as Grappler passes it; it is changed in place.
        number: as for `built`.
    """
    calls = _calls_in_scopes(number)
    known = built(number) if calls else ()
    with_gradients = {name for name, given in calls.items() if KEEP in given and given[KEEP].i == KEEP_WITH_GRADIENTS}
    for node in graph_def.node if calls else ():
        if node.name not in known:
            _mark_by_innermost_call(node, calls)
            if with_gradients and is_gradient_of(node.name, with_gradients):
                node.attr[KEEP].i = 1


def _operations(number):
    graph = getattr(_running, "graph", lambda: None)() if number is None else _graphs.get(number)
    return () if graph is None else graph.get_operations()


def _calls_in_scopes(number):
    """Maps each call that is in a scope to the attributes of its scopes."""
    registered, found = op_defs(), {}
    for op in _operations(number):
        if op.type in KINDS or op.type not in registered:
            given = op.node_def.attr
            attributes = {name: given[name] for name in (KEEP, TO_FLOAT) if name in given}
            if attributes:
                found[op.name] = attributes
    return found


def _mark_by_innermost_call(node, calls):
    """Marks a node with the attributes of the innermost call around it; its own attributes win."""
    caller = node.name
    while caller:
        caller = caller.rpartition("/")[0]
        for name, value in calls.get(caller, {}).items():
            if name not in node.attr:
                node.attr[name].CopyFrom(value)
