"""Replaces the nodes of a GraphDef that the table has, in its functions too."""

import tensorflow.compat.v1 as tf

from npu_shim.xla.lowering import order, splice, uniques
from npu_shim.xla.lowering.facts import UNIQUE, UNIQUE_HERE, Facts
from npu_shim.xla.lowering.table import TABLE


def lower(graph_def, keep=(), table=None):
    """Returns a GraphDef without the ops of the table; the given one itself where it has none.

    Args:
        graph_def: tf.compat.v1.GraphDef with resource variables and v1 control flow; it is not changed.
        keep: names of the nodes that are fetched or run.
        table: op -> function of a `site.Site` that makes tensors, or a list of operations where the op gives nothing;
            None for `table.TABLE`.

    Raises:
        PlanError: a node that cannot be lowered as it stands, named with what is missing.
    """
    table = TABLE if table is None else table
    graph_def = _without_uniques(graph_def, keep)
    chosen = {node.name: table[node.op] for node in graph_def.node if node.op in table}
    return _replaced(order.in_turn(graph_def, chosen), chosen, Facts(graph_def)) if chosen else graph_def


def _without_uniques(graph_def, keep):
    """The graph with its Uniques lowered that can be: some once the sizes of others are known."""
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
    return graph_def


def _replaced(graph_def, chosen, facts):
    made = tf.GraphDef(versions=graph_def.versions, library=graph_def.library)
    for node in graph_def.node:
        if node.name not in chosen:
            made.node.append(node)
            continue
        nodes, functions = splice.in_place_of(node, chosen[node.name], facts)
        made.node.extend(nodes)
        made.library.function.extend(functions)
    return made
