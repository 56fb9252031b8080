"""Assignments to a slice of a variable, as a choice between the new values and the old.

XLA's CPU compiler (TensorFlow 2.15.1) writes a slice in place while it computes what is written, and reads there what
it wrote:  v[1:3].assign(f(v)[:2])  gave f of the new v[1] in v[2].

    ResourceStridedSliceAssign(v, [1], [3], y)     becomes     v <- where(in the slice, y put at its place, v)
"""

import tensorflow.compat.v1 as tf

from npu_shim.session.clusters.pruning import source_of

OP = "ResourceStridedSliceAssign"
MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")


def as_choices(graph_def):
    """Returns a GraphDef without ops that assign to slices; the given one itself where it has none.

    Args:
        graph_def: tf.compat.v1.GraphDef without reference variables; it is not changed.
    """
    chosen = [node for node in graph_def.node if node.op == OP]
    if not chosen:
        return graph_def
    made = tf.GraphDef(versions=graph_def.versions, library=graph_def.library)
    made.node.extend(node for node in graph_def.node if node.op != OP)
    for node in chosen:
        made.node.extend(_choice(node))
    return made


def _choice(node):
    """The nodes in place of an assignment to a slice, those of its frame and branch behind its inputs."""
    data = [text for text in node.input if text[0] != "^"]
    controls = [text for text in node.input if text[0] == "^"]
    dtype = tf.as_dtype(node.attr["T"].type)
    index = tf.as_dtype(node.attr["Index"].type)
    masks = {name: node.attr[name].i for name in MASKS}
    scope = node.name + "/choice/"
    with tf.Graph().as_default() as graph:
        handle = tf.placeholder(tf.resource, [], scope + "in0")
        begin, end, strides = (tf.placeholder(index, name="%sin%d" % (scope, number)) for number in (1, 2, 3))
        value = tf.placeholder(dtype, name=scope + "in4")
        with tf.name_scope(scope):
            old = tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype, name="old")
            where = dict(begin=begin, end=end, strides=strides, **masks)
            part = tf.raw_ops.StridedSlice(input=old, **where, name="part")
            value = tf.broadcast_to(value, tf.shape(part, out_type=index), "value")
            back = lambda dy: tf.raw_ops.StridedSliceGrad(shape=tf.shape(old, out_type=index), dy=dy, **where)  # noqa: E731
            inside = tf.cast(back(tf.ones_like(part, tf.int32)), tf.bool)
            tf.where_v2(inside, back(value), old, name="new")
    nodes = [each for each in graph.as_graph_def().node if each.op != "Placeholder"]
    given = dict(zip(("%sin%d" % (scope, number) for number in range(5)), data))
    for each in nodes:
        for number, text in enumerate(each.input):
            each.input[number] = given.get(text, text)
        if each.op == "Const":
            each.input.append("^" + scope + "old")  # into the branch or loop
        if each.name == scope + "old":
            each.input.extend(dict.fromkeys(["^" + source_of(text) for text in data[4:]] + controls))
    write = tf.NodeDef(name=node.name, op="AssignVariableOp", input=[data[0], scope + "new", *controls])
    write.attr["dtype"].type = dtype.as_datatype_enum
    return [*nodes, write]
