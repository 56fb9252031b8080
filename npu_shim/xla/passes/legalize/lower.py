"""Lowers the nodes of a GraphDef whose ops are in the table, in its functions too."""

from __future__ import annotations

from typing import Any, Callable, Iterable, Mapping

import tensorflow.compat.v1 as tf

from npu_shim.xla.passes.legalize import bodies, order, repeated, splice
from npu_shim.xla.passes.legalize.facts import UNIQUE, UNIQUE_HERE, Facts
from npu_shim.xla.passes.legalize.ops import uniques
from npu_shim.xla.passes.legalize.table import BY_ROW, DTYPES, TABLE


def lower(graph_def: Any, keep: Iterable[str] = (), table: Mapping[str, Callable[[Any], Any]] | None = None) -> Any:
    """Returns a GraphDef without the ops of the table; the same object if there are none.

    Args:
        graph_def: tf.compat.v1.GraphDef with resource variables and v1 control flow; it is not changed.
        keep: names of the nodes that are fetched or run.
        table: op -> function from a `site.Site` to tensors, or to a list of operations if the op has no outputs;
            None for `table.TABLE`.

    Raises:
        PlanError: a node cannot be lowered; the error names it and what is missing.
    """
    table = TABLE if table is None else table
    nested = bodies.callers_first(graph_def, lambda node: _is_lowered(node, table) or node.op in UNIQUE)
    given = {}
    graph_def = _lowered(graph_def, keep, table, given, nested)
    for name in nested:
        function = _library(graph_def)[name]
        body = bodies.as_graph(function, graph_def.library, given.get(name))
        body = _lowered(body, bodies.keep(function), table, given, nested)
        lowered = bodies.as_function(function, body)
        graph_def.library.CopyFrom(body.library)
        next(function for function in graph_def.library.function if function.signature.name == name).CopyFrom(lowered)
    return graph_def


def _lowered(graph_def, keep, table, given, nested):
    """Lowers one graph or body; merges into `given` the facts that its calls pass to functions in `nested`."""
    graph_def = _without_uniques(_with_rows(graph_def, keep, table), keep)
    chosen = {node.name: table[node.op] for node in graph_def.node if _is_lowered(node, table)}
    if not chosen and not nested:
        return graph_def
    facts = Facts(graph_def)
    library = {name: body for name, body in _library(graph_def).items() if name in nested}
    for name, arguments in bodies.calls(graph_def.node, library, facts):
        given[name] = bodies.merged(given.get(name), arguments)
    return _replaced(order.in_turn(graph_def, chosen), chosen, facts)


def _is_lowered(node, table):
    return node.op in table and (node.op not in DTYPES or node.attr["T"].type in DTYPES[node.op])


def _library(graph_def):
    return {function.signature.name: function for function in graph_def.library.function}


def _with_rows(graph_def, keep, table):
    """Lowers the gradients that have a row for each index, so that what takes them has a known size."""
    chosen = {node.name: table[node.op] for node in graph_def.node if node.op in BY_ROW and node.op in table}
    if not chosen:
        return graph_def
    facts = Facts(graph_def)
    repeated.require_summed(graph_def, chosen, frozenset(keep), facts)
    return _replaced(graph_def, chosen, facts)


def _without_uniques(graph_def, keep):
    """Lowers the Uniques that can be lowered, again while that fixes the sizes of others."""
    while any(node.op in UNIQUE for node in graph_def.node):
        facts = Facts(graph_def)
        chosen = uniques.rows(graph_def, keep, facts)
        if not chosen:
            break
        graph_def = _replaced(graph_def, chosen, facts)
        for node in graph_def.node:
            if node.name in chosen:
                node.attr[UNIQUE_HERE].b = True
    uniques.refuse(graph_def)
    return uniques.with_sizes(graph_def)


def _replaced(graph_def, chosen, facts):
    replaced = tf.GraphDef(versions=graph_def.versions, library=graph_def.library)
    for node in graph_def.node:
        if node.name not in chosen:
            replaced.node.append(node)
            continue
        nodes, functions = splice.in_place_of(node, chosen[node.name], facts)
        replaced.node.extend(nodes)
        replaced.library.function.extend(functions)
    return replaced
