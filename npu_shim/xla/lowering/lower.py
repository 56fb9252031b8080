"""Replaces the nodes of a GraphDef that the table has, in its functions too."""

import tensorflow.compat.v1 as tf

from npu_shim.xla.lowering import splice, write_order
from npu_shim.xla.lowering.facts import Facts
from npu_shim.xla.lowering.table import TABLE


def lower(graph_def, table=None):
    """Returns a GraphDef without the ops of the table; the given one itself where it has none.

    Args:
        graph_def: tf.compat.v1.GraphDef with resource variables and v1 control flow; it is not changed.
        table: op -> function of a `site.Site` that makes tensors, or a list of operations where the op gives nothing;
            None for `table.TABLE`.

    Raises:
        PlanError: a node that cannot be lowered as it stands, named with what is missing.
    """
    table = TABLE if table is None else table
    chosen = {node.name: table[node.op] for node in graph_def.node if node.op in table}
    if not chosen:
        return graph_def
    facts = Facts(graph_def)
    made = tf.GraphDef(versions=graph_def.versions, library=graph_def.library)
    for node in write_order.in_turn(graph_def, chosen).node:
        if node.name not in chosen:
            made.node.append(node)
            continue
        nodes, functions = splice.in_place_of(node, chosen[node.name], facts)
        made.node.extend(nodes)
        made.library.function.extend(functions)
    return made
