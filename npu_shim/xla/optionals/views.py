"""A graph and the functions that it calls as flat graphs, with dtypes and shapes of their tensors."""

from __future__ import annotations

from typing import Any, Collection, Mapping, NamedTuple

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.graphdef import functions
from npu_shim.xla.lowering import bodies
from npu_shim.xla.lowering.facts import Facts

READS = ("ReadVariableOp", "ResourceGather", "ResourceGatherNd")
GRAPH = ""  # name of the View of the graph itself


class View(NamedTuple):
    """A graph, or a function's body.

    Attributes:
        graph_def: the nodes as `bodies.as_graph` gives them.
        facts: `Facts` about them.
        arguments: names of the nodes that stand for a function's arguments, in order.
        results: the tensors that a function returns, in order.
    """

    graph_def: Any
    facts: Facts
    arguments: tuple[str, ...]
    results: tuple[str, ...]


def have_any(graph_def: Any, ops: Collection[str]) -> bool:
    """Returns whether a GraphDef or its functions have a node of some ops."""
    every = [graph_def.node, *(function.node_def for function in graph_def.library.function)]
    return any(node.op in ops for nodes in every for node in nodes)


def of(graph_def: Any) -> Mapping[str, View]:
    """Returns name of a function, or GRAPH -> its View, callers first.

    TensorFlow does not infer the shapes of what a call returns. They are taken from the body, once its arguments have
    shapes, and so on as long as that tells more.
    """
    returned: dict[str, list[Any]] = {}
    while True:
        views = _round(graph_def, returned)
        now = {name: [view.facts.shape(text) for text in view.results] for name, view in views.items()}
        if repr(now) == repr(returned) or (not returned and _all_known(views, now)):
            return views
        returned = now


def _all_known(views, returned):
    return all(
        shape.is_fully_defined() or is_variant(views[name], text)
        for name, shapes in returned.items()
        for shape, text in zip(shapes, views[name].results)
    )


def _round(graph_def, returned):
    """The Views, given the shapes that functions return as far as they are known."""
    library = {each.signature.name: each for each in graph_def.library.function}
    found = {GRAPH: View(graph_def, Facts(_told(graph_def, library, returned)), (), ())}
    given: dict[str, list[bodies.Given]] = {}
    _pass_on(found[GRAPH], library, given)
    for name in bodies.callers_first(graph_def, lambda op: True):
        function = library[name]
        flat = bodies.as_graph(function, graph_def.library, given.get(name))
        taken = tuple(argument.name for argument in function.signature.input_arg)
        facts = Facts(_told(_with_handles(flat), library, returned))
        found[name] = View(flat, facts, taken, tuple(bodies.results(function, graph_def.library)))
        _pass_on(found[name], library, given)
    return found


def _told(flat, library, returned):
    """A graph whose calls have the shapes that their functions return."""
    if not returned:
        return flat
    made = tf.GraphDef()
    made.CopyFrom(flat)
    for node in made.node:
        names = [name for name in functions.called(node, library) if name in returned]
        if functions.kind_of(node, library) == functions.LOOP:
            names = names[1:]  # the condition returns none of its variables
        shapes = [_merged(each).as_proto() for each in zip(*(returned[name] for name in names))]
        listed = tf.AttrValue(list=tf.AttrValue.ListValue(shape=shapes))
        if shapes and functions.kind_of(node, library) != functions.CALL:
            node.attr["output_shapes"].CopyFrom(listed)
        elif shapes:  # a call has no such attribute, so that here another op gives what it gives
            dtypes = [each.type for each in library[names[0]].signature.output_arg]
            node.CopyFrom(tf.NodeDef(name=node.name, op="InfeedDequeueTuple"))
            node.attr["dtypes"].list.type.extend(dtypes)
            node.attr["shapes"].CopyFrom(listed)
    return made


def _merged(shapes):
    """The shape of what either branch returns."""
    first = shapes[0]
    return first if all(repr(each) == repr(first) for each in shapes) else tf.TensorShape(None)


def _with_handles(flat):
    """A body whose handles of variables are VarHandleOps of their shapes, so that reads of them have shapes."""
    handles = {n.name: n for n in flat.node if n.op == "Placeholder" and n.attr["dtype"].type == tf.resource}
    if not handles:
        return flat
    made = tf.GraphDef()
    made.CopyFrom(flat)
    dtypes = {text: n.attr["dtype"].type for n in flat.node if n.op in READS for text in n.input[:1]}
    for node in made.node:
        if node.name in handles:
            node.op = "VarHandleOp"
            node.attr["dtype"].type = dtypes.get(node.name, tf.float32.as_datatype_enum)
    return made


def _pass_on(view, library, given):
    """Adds the shapes that a view's calls pass on; calls of which some shapes are not known yet agree with the others.

    If they turn out not to, XLA refuses the step.
    """
    for name, passed in bodies.calls(view.graph_def.node, library, view.facts):
        shapes = [bodies.UNKNOWN._replace(shape=each.shape) for each in passed]
        given[name] = [_first_known(*each) for each in zip(given.get(name, shapes), shapes)]


def _first_known(one, other):
    if one.shape.is_fully_defined() and other.shape.is_fully_defined():
        return one if repr(one) == repr(other) else bodies.UNKNOWN
    return one if one.shape.is_fully_defined() else other


def is_variant(view: View, text: str) -> bool:
    """Returns whether a tensor has dtype variant."""
    return bool(view.facts.tensor(text).dtype.base_dtype == tf.variant)
