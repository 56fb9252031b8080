"""Random ops of a step as functions of (their seed, the number of the step), so that a compiled step repeats itself.

XLA ignores the seeds of TensorFlow's stateful random ops. Each becomes its stateless form, whose numbers depend on a
key and a counter:

    u:RandomUniform(shape) seed=3 seed2=7     becomes  StatelessRandomUniformV2(shape, key of (3, 7), [0, step])
    u:RandomUniform(shape) without seeds      becomes  StatelessRandomUniformV2(shape, base + key of "u", [0, step])

`base` and `step` are the two numbers of a state variable, STATE; base is drawn when the state is made. So, as in
TensorFlow, what has seeds draws the same numbers in every run and what has none does not. The numbers are those of
XLA's Philox, not those that a session draws. Ops inside of loops stay as they are, since they draw anew in every
iteration: XLA's own generator serves them, and nothing is promised of their numbers.
"""

import os
import zlib

import numpy as np
import tensorflow.compat.v1 as tf

from npu_shim.xla.pruning import source_of

STATE = "npu_shim/random_state"
STATELESS = {
    "RandomUniform": "StatelessRandomUniformV2",
    "RandomUniformInt": "StatelessRandomUniformIntV2",
    "RandomStandardNormal": "StatelessRandomNormalV2",
    "TruncatedNormal": "StatelessTruncatedNormalV2",
}
PHILOX = 1
ADVANCE = STATE + "/advance"


def initial_state():
    """Returns a new state: int64 [2], a base drawn from the system and step 0."""
    return np.array([int.from_bytes(os.urandom(4), "little"), 0], np.int64)


def to_stateless(graph_def):
    """Returns a GraphDef whose random ops outside of loops are stateless; the given one itself where it has none.

    Args:
        graph_def: tf.compat.v1.GraphDef without reference variables, with v1 loops; it is not changed.

    Returns:
        GraphDef. It has a variable STATE (int64 [2]) and an op of the name ADVANCE that adds 1 to the step.
    """
    looped = _in_loops(graph_def)
    chosen = [node for node in graph_def.node if node.op in STATELESS and node.name not in looped]
    if not chosen:
        return graph_def
    made = tf.GraphDef()
    made.CopyFrom(graph_def)
    names = {node.name for node in chosen}
    for node in made.node:
        if node.name in names:
            made.node.extend(_seed_nodes(node))
            _take_stateless_form(node)
    made.node.extend(_state_nodes())
    return made


def advances(graph_def):
    """Returns the names of the ops that end a step's drawing: [ADVANCE], or nothing where nothing is drawn."""
    return [node.name for node in graph_def.node if node.name == ADVANCE]


def _state_nodes():
    """The state, its value at the start of the step, and what moves it."""
    with tf.Graph().as_default() as graph:
        handle = tf.raw_ops.VarHandleOp(dtype=tf.int64, shape=[2], shared_name=STATE, name=STATE)
        now = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.int64, name=STATE + "/now")
        with tf.control_dependencies([now]):
            more = tf.constant([0, 1], tf.int64, name=STATE + "/more")
            tf.raw_ops.AssignAddVariableOp(resource=handle, value=more, name=ADVANCE)
    return graph.as_graph_def().node


def _seed_nodes(node):
    """The nodes that compute key (uint64 [1]), counter (uint64 [2]) and algorithm of one op, named below the op."""
    seeds = node.attr["seed"].i, node.attr["seed2"].i
    with tf.Graph().as_default() as graph:
        now = tf.placeholder(tf.int64, [2], STATE + "/now")
        with tf.name_scope(_scope(node)):
            key = zlib.crc32(node.name.encode()) + now[:1] if seeds == (0, 0) else [zlib.crc32(b"%d %d" % seeds)]
            tf.cast(key, tf.uint64, name="key")
            tf.cast(now * [0, 1], tf.uint64, name="counter")
            tf.constant(PHILOX, tf.int32, name="algorithm")
    return [made for made in graph.as_graph_def().node if made.op != "Placeholder"]


def _scope(node):
    return node.name + "/stateless/"


def _take_stateless_form(node):
    data = [text for text in node.input if text[0] != "^"]
    controls = [text for text in node.input if text[0] == "^"]
    data[1:1] = [_scope(node) + name for name in ("key", "counter", "algorithm")]
    if node.op == "RandomUniformInt":
        node.attr["dtype"].type = node.attr["Tout"].type
        del node.attr["Tout"]
    node.attr["Tshape"].type = node.attr["T"].type
    node.op = STATELESS[node.op]
    del node.input[:]
    node.input.extend(data + controls)
    del node.attr["seed"], node.attr["seed2"], node.attr["T"]


def _in_loops(graph_def):
    """Names of the nodes inside of v1 loops."""
    consumers = {}
    for node in graph_def.node:
        for text in node.input:
            consumers.setdefault(source_of(text), []).append(node)
    depth = {node.name: 0 for node in graph_def.node if not node.input}
    pending = list(depth)
    for name in pending:  # grows while it is read
        for node in consumers.get(name, ()):
            if node.name not in depth:
                depth[node.name] = depth[name] + {"Enter": 1, "Exit": -1}.get(node.op, 0)
                pending.append(node.name)
    return {name for name, below in depth.items() if below > 0}
