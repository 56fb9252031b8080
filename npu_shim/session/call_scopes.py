"""Scopes around calls: what keep_dtype_scope and to_float say of a call holds for what TensorFlow writes in its place.

A session's graph reaches NpuOptimizer with its functions inlined and its If and While lowered: the call has gone, and
with it the attributes that the scope gave it. Its nodes are told by their names, and the call by the session's graph:

    with keep_dtype_scope(): y = f(x)      f: StatefulPartitionedCall, _keep_dtype      as it was built
                                           f/MatMul, f/Relu, Func/f/output/_3           as Grappler gives it
"""

import threading
import weakref

from npu_shim.rewriter.graphdef.functions import KINDS
from npu_shim.rewriter.graphdef.reading import KEEP, KEEP_WITH_GRADIENTS, TO_FLOAT, is_gradient_of
from npu_shim.rewriter.tf_internals import op_defs

_graphs = weakref.WeakValueDictionary()  # number of a session -> its tf.Graph
_running = threading.local()  # .graph: weak reference to the tf.Graph of the session that this thread runs


def know(number, graph):
    """Notes the tf.Graph of a session; a graph is rewritten in any thread, and in a server's after other sessions'."""
    _graphs[number] = graph


def watch(graph):
    """Notes the tf.Graph that this thread is about to run, for sessions that have no number."""
    _running.graph = weakref.ref(graph)


def names(number):
    """Returns the names of the nodes of a session's graph, as it was built.

    Args:
        number: the session's, or None for the one that this thread runs.
    """
    return {op.name for op in _operations(number)}


def mark(graph_def, number):
    """Gives what was written in place of a call the attributes of the scopes that the call is in.

    Args:
        graph_def: tf.compat.v1.GraphDef of what the session runs, as Grappler gives it; it is changed in place.
        number: as for `names`.
    """
    calls = _calls(number)
    built = names(number) if calls else ()
    with_gradients = {name for name, given in calls.items() if KEEP in given and given[KEEP].i == KEEP_WITH_GRADIENTS}
    for node in graph_def.node if calls else ():
        if node.name not in built:
            _mark(node, calls)
            if with_gradients and is_gradient_of(node.name, with_gradients):
                node.attr[KEEP].i = 1


def _operations(number):
    graph = getattr(_running, "graph", lambda: None)() if number is None else _graphs.get(number)
    return () if graph is None else graph.get_operations()


def _calls(number):
    """Name of a call in a scope -> attributes of its scopes."""
    registered, found = op_defs(), {}
    for op in _operations(number):
        if op.type in KINDS or op.type not in registered:
            given = op.node_def.attr
            attributes = {name: given[name] for name in (KEEP, TO_FLOAT) if name in given}
            if attributes:
                found[op.name] = attributes
    return found


def _mark(node, calls):
    """Marks a node by the innermost call that it stands in; its own attributes win."""
    caller = node.name
    while caller:
        caller = caller.rpartition("/")[0]
        for name, value in calls.get(caller, {}).items():
            if name not in node.attr:
                node.attr[name].CopyFrom(value)
