"""Scopes around calls: the attributes that keep_dtype_scope and to_float give a call are copied to its inlined nodes.

A session's graph reaches NpuOptimizer with its functions inlined and its If and While lowered. The call is gone, and
its attributes with it. The inlined nodes are recognized by their names, and the call is found in the session's graph:

    with keep_dtype_scope(): y = f(x)      f: StatefulPartitionedCall, _keep_dtype      as it was built
                                           f/MatMul, f/Relu, Func/f/output/_3           as Grappler gives it

A scope inside a function is found in the graph's library: f/cond/then/_4/g/MatMul is in the scope of g in f's cond.

Inlined, a call in a scope and an equal one outside are equal nodes, which Grappler merges before the scope is known. It
merges none in sessions whose graphs have such scopes (`any_in`); where a scope comes later, `mark` says so.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.graph.graph_view import KEEP, KEEP_WITH_GRADIENTS, TO_FLOAT
from npu_shim.rewriter.graph.walks import reached
from npu_shim.rewriter.graphdef.functions import KINDS, called, kind_of, roles
from npu_shim.rewriter.graphdef.inlined_names import without_traces
from npu_shim.rewriter.tf_internals import op_defs
from npu_shim.session import lines
from npu_shim.session.interception import replaced_ops

LATE = (
    "'%s' is in a keep_dtype_scope or a to_float and was built after its session: if the graph computes the same "
    "outside of the scope, TensorFlow may compute both at once, in one dtype; make the session after its graph"
)
AS_ONE = (
    "TensorFlow makes the gradient of the Defun '%s' as one: all of it keeps its dtype, because there is a "
    "keep_dtype_scope(gradients=True) inside"
)
GRADIENT = "SymbolicGradient"  # op: the gradient of a Defun, which TensorFlow makes in C++ when it inlines it
_graphs = weakref.WeakValueDictionary()  # number of a session -> its tf.Graph
_running = threading.local()  # .graph: weak reference to the tf.Graph of the session that this thread runs


def register_graph(number: int, graph: Any) -> None:
    """Records the tf.Graph of a session: the rewrite may run in any thread, and in a server after other sessions'."""
    _graphs[number] = graph


def any_in(graph: Any) -> tuple[bool, bool]:
    """Whether a graph, None for the default one, has scopes that `mark` copies to other nodes, and in its functions."""
    graph = tf.get_default_graph() if graph is None else graph
    if not isinstance(graph, tf.Graph):
        return False, False
    bodies = _bodies_with_scopes(graph)
    return bool(_in_scopes(graph, bodies)), bool(bodies)


def watch(graph: Any) -> None:
    """Records the tf.Graph that this thread is about to run, for sessions without a number."""
    _running.graph = weakref.ref(graph)


def graph_of(number: int | None) -> Any:
    """Returns the tf.Graph of a session, None if it is gone or elsewhere; argument as for `built`."""
    return getattr(_running, "graph", lambda: None)() if number is None else _graphs.get(number)


def built(number: int | None) -> dict[str, str]:
    """Returns name -> op of the nodes of a session's graph, as the script built it.

    Args:
        number: the session's, or None for the session that this thread runs.
    """
    return {op.name: op.type for op in _operations(number)}


def built_in_functions(number: int | None) -> dict[str, str]:
    """Returns place -> op of the nodes that inlining gives a session's graph, as the script built them.

    Args:
        number: as for `built`.
    """
    graph = graph_of(number)
    if graph is None:
        return {}
    functions = _functions(graph)
    types: dict[str, str] = {}
    if functions:
        _collect_types([op.node_def for op in graph.get_operations()], functions, (), "", types)
    return types


def mark(graph_def: Any, number: int | None, apart: bool = True) -> None:
    """Copies the attributes of a call's scopes to the nodes that were inlined for the call.

    Args:
        graph_def: tf.compat.v1.GraphDef of what the session runs, as Grappler passes it; it is changed in place.
        number: as for `built`.
        apart: whether TensorFlow has merged no equal nodes.
    """
    graph = graph_of(number)
    if graph is not None:
        replaced_ops.mark(graph_def, graph)
    scoped = {} if graph is None else _in_scopes(graph, _bodies_with_scopes(graph))
    if scoped and not apart:
        lines.once(LATE % next(iter(scoped)))
    known = built(number) if scoped else ()
    for node in graph_def.node if scoped else ():
        if node.name not in known:
            _mark_by_innermost_call(node, scoped)


def _operations(number):
    graph = graph_of(number)
    return () if graph is None else graph.get_operations()


def _in_scopes(graph, bodies):
    """Maps the name of each call in a scope to the attributes of the scopes; `bodies` are `_bodies_with_scopes`'.

    The names are those that inlining gives.
    """
    nodes = [op.node_def for op in graph.get_operations() if _is_call(op.type)]
    scopes: dict[str, dict[str, Any]] = {}
    _collect(nodes, bodies, (), "", scopes)
    return scopes


def _is_call(op):
    return op in KINDS or op not in op_defs() or op == GRADIENT


def _bodies_with_scopes(graph):
    """Maps the name of each function in which ops are in scopes, or in what it calls, to its calls and those ops."""
    functions = _functions(graph)
    nodes = {name: [n for n in body.node_def if _is_call(n.op) or _attributes(n)] for name, body in functions.items()}
    wanted: set[str] = set()
    reached = {name for name, body in nodes.items() if any(map(_attributes, body))}
    while reached:
        wanted |= reached
        reached = {name for name in nodes.keys() - wanted if any(wanted & {*called(n, functions)} for n in nodes[name])}
    return {name: nodes[name] for name in wanted}


def _functions(graph):
    """Maps the name of each function of a graph to its FunctionDef."""
    library = tf.GraphDef()
    graph._copy_functions_to_graph_def(library, 0)
    return {function.signature.name: function for function in library.library.function}


def _collect_types(nodes, functions, around, prefix, types):
    """Adds the types of the nodes of the functions that nodes call; a function in itself is not inlined."""
    for node in nodes:
        kind = kind_of(node, functions)
        for name, role in zip(called(node, functions), () if kind is None else roles(node, kind)):
            if name in functions and name not in around:
                within = "%s%s%s/" % (prefix, node.name, "" if role == "body" else "[%s]" % role)
                body = functions[name].node_def
                types.update((within + inner.name, inner.op) for inner in body)
                _collect_types(body, functions, (*around, name), within, types)


def _collect(nodes, bodies, around, prefix, scopes):
    """Adds the calls among nodes, and those in the functions that they call; a function in itself is not inlined."""
    for node in nodes:
        if not _is_call(node.op):
            continue
        name = prefix + node.name
        attributes = _attributes(node)
        if KEEP not in attributes and _is_gradient_of_kept(node, bodies):
            attributes[KEEP] = tf.AttrValue(i=KEEP_WITH_GRADIENTS)
        if attributes:
            scopes[name] = attributes
        for function in {*called(node, bodies)} & bodies.keys() - {*around}:
            _collect(bodies[function], bodies, (*around, function), name + "/", scopes)


def _is_gradient_of_kept(node, bodies):
    """Whether a node is the gradient of a Defun in which, or in what it calls, a scope asks for the gradients."""
    if node.op != GRADIENT:
        return False
    name = node.attr["f"].func.name
    kept = any(
        KEEP in node.attr and node.attr[KEEP].i == KEEP_WITH_GRADIENTS
        for function in reached([name], lambda f: [inner for n in bodies.get(f, ()) for inner in called(n, bodies)])
        for node in bodies.get(function, ())
    )
    if kept:
        lines.once(AS_ONE % name)
    return kept


def _attributes(node):
    """The attributes that scopes gave a node."""
    return {name: node.attr[name] for name in (KEEP, TO_FLOAT) if name in node.attr}


def _mark_by_innermost_call(node, calls):
    """Marks a node with the attributes of the innermost call around it; its own attributes win."""
    caller = without_traces(node.name)
    while caller:
        caller = caller.rpartition("/")[0]
        for name, value in calls.get(caller, {}).items():
            if name not in node.attr:
                node.attr[name].CopyFrom(value)
