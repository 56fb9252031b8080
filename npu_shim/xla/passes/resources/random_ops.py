"""Makes a step's random ops functions of their seed and the step number, so that a compiled step is reproducible.

XLA ignores the seeds of TensorFlow's stateful random ops. Each becomes its stateless form, which draws from a key
and a counter:

    u:RandomUniform(shape) seed=3 seed2=7     becomes  StatelessRandomUniformV2(shape, key of (3, 7), [0, step])
    u:RandomUniform(shape) without seeds      becomes  StatelessRandomUniformV2(shape, base + key of "u", [0, step])

`base` and `step` are the two numbers of a state variable, STATE; base is drawn when the state is made. So, as in
TensorFlow, a seeded op draws the same numbers in every run and an unseeded op does not. The numbers are those of XLA's
Philox, not those that a session draws. A shuffle sorts its rows by such numbers; a multinomial takes the argmax of
logits plus Gumbel noise. Ops in loops and functions are not converted: XLA's own generator draws for them, and their
numbers are not reproducible. A warning names those that have a seed.
"""

from __future__ import annotations

import os
import zlib
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from npu_shim.rewriter.graph.arguments import controls, data
from npu_shim.session import lines
from npu_shim.xla.passes.resources.v1_loops import inside

STATE = "npu_shim/random_state"
SHUFFLE, MULTINOMIAL = "RandomShuffle", "Multinomial"
STATELESS = {
    "RandomUniform": "StatelessRandomUniformV2",
    "RandomUniformInt": "StatelessRandomUniformIntV2",
    "RandomStandardNormal": "StatelessRandomNormalV2",
    "TruncatedNormal": "StatelessTruncatedNormalV2",
    MULTINOMIAL: "ArgMax",
    SHUFFLE: "GatherV2",
}
# draw from seeds that are their inputs, other numbers by XLA than by TensorFlow's kernels (2.15.1, CPU); for whole
# numbers both agree
OWN_SEEDS = frozenset([
    "StatelessMultinomial", "StatelessParameterizedTruncatedNormal", "StatelessRandomNormal",
    "StatelessRandomNormalV2", "StatelessRandomUniform", "StatelessRandomUniformV2", "StatelessTruncatedNormal",
    "StatelessTruncatedNormalV2",
])  # fmt: skip
# ops with an attribute seed2, TensorFlow 2.15.1 and 2.21.0
SEEDED = frozenset([
    "AllCandidateSampler", "ComputeAccidentalHits", "CudnnRNN", "CudnnRNNBackprop", "CudnnRNNBackpropV2",
    "CudnnRNNBackpropV3", "CudnnRNNCanonicalToParams", "CudnnRNNCanonicalToParamsV2", "CudnnRNNParamsSize",
    "CudnnRNNParamsToCanonical", "CudnnRNNParamsToCanonicalV2", "CudnnRNNV2", "CudnnRNNV3",
    "FixedUnigramCandidateSampler", "FractionalAvgPool", "FractionalMaxPool", "LearnedUnigramCandidateSampler",
    "LogUniformCandidateSampler", "Multinomial", "ParameterizedTruncatedNormal", "RandomCrop", "RandomGamma",
    "RandomPoisson", "RandomPoissonV2", "RandomShuffle", "RandomShuffleQueue", "RandomShuffleQueueV2",
    "RandomStandardNormal", "RandomUniform", "RandomUniformInt", "SampleDistortedBoundingBox",
    "SampleDistortedBoundingBoxV2", "SnapshotDataset", "ThreadUnsafeUnigramCandidateSampler", "TruncatedNormal",
    "UniformCandidateSampler",
])  # fmt: skip
OPS = SEEDED.union(STATELESS, OWN_SEEDS)  # what `to_stateless` converts or warns of
PHILOX = 1
ADVANCE = STATE + "/advance"


def initial_state() -> np.ndarray:
    """Returns a new state: int64 [2], a base drawn from the system and step 0."""
    return np.array([int.from_bytes(os.urandom(4), "little"), 0], np.int64)


def to_stateless(graph_def: Any) -> Any:
    """Returns a GraphDef whose random ops outside of loops are stateless; the same object if there are none.

    Args:
        graph_def: tf.compat.v1.GraphDef without reference variables, with v1 loops; it is not changed.

    Returns:
        GraphDef. It has a variable STATE (int64 [2]) and an op named ADVANCE that adds 1 to the step.
    """
    looped = inside(graph_def)
    _warn_of_seeds(graph_def, looped)
    _warn_of_own_seeds(graph_def)
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


def advances(graph_def: Any) -> list[str]:
    """Returns the names of the ops that advance the step number: [ADVANCE], or [] if nothing is drawn."""
    return [node.name for node in graph_def.node if node.name == ADVANCE]


def _state_nodes():
    """The state, its value at the start of the step, and the op that advances it."""
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
            own = tf.constant([zlib.crc32(node.name.encode() if seeds == (0, 0) else b"%d %d" % seeds)], tf.int64)
            key = own + now[:1] if seeds == (0, 0) else own
            key = tf.cast(key, tf.uint64, name="key")
            counter = tf.cast(now * [0, 1], tf.uint64, name="counter")
            algorithm = tf.constant(PHILOX, tf.int32, name="algorithm")
            draw = lambda shape: tf.raw_ops.StatelessRandomUniformV2(  # noqa: E731
                shape=shape, key=key, counter=counter, alg=algorithm
            )
            if node.op in (SHUFFLE, MULTINOMIAL):
                (_rows if node.op == SHUFFLE else _classes)(tf.placeholder(node.attr["T"].type, name="value"), draw)
    made = [each for each in graph.as_graph_def().node if each.op != "Placeholder"]
    inputs = data(node) if node.op in (SHUFFLE, MULTINOMIAL) else ()
    for name, text in zip(("value", "count"), inputs):
        made.append(tf.NodeDef(name=_scope(node) + name, op="Identity", input=[text]))
        made[-1].attr["T"].type = node.attr["T"].type if name == "value" else tf.int32.as_datatype_enum
    return made


def _rows(value, draw):
    """The random order of the rows of a value, for GatherV2."""
    rows = tf.shape(value)[:1]
    tf.raw_ops.TopKV2(input=draw(rows), k=rows[0], name="order")
    tf.constant(0, name="axis")


def _classes(logits, draw):
    """Scores [batch, draws, classes] of logits [batch, classes]; each draw is the class of the largest."""
    count = tf.placeholder(tf.int32, [], "count")
    noise = draw(tf.concat([tf.shape(logits)[:1], [count], tf.shape(logits)[1:2]], 0))
    noise = -tf.log(-tf.log(tf.maximum(noise, np.finfo(np.float32).tiny)))  # Gumbel noise
    tf.add(tf.cast(logits, tf.float32)[:, None], noise, name="scores")
    tf.constant(2, name="axis")


def _scope(node):
    return node.name + "/stateless/"


def _take_stateless_form(node):
    taken, waits = data(node), controls(node)
    if node.op == SHUFFLE:
        taken = [_scope(node) + name for name in ("value", "order:1", "axis")]
        node.attr["Tparams"].type = node.attr["T"].type
        node.attr["Tindices"].type = node.attr["Taxis"].type = tf.int32.as_datatype_enum
    elif node.op == MULTINOMIAL:
        taken = [_scope(node) + name for name in ("scores", "axis")]
        node.attr["output_type"].type = node.attr["output_dtype"].type
        node.attr["Tidx"].type = tf.int32.as_datatype_enum
        node.attr["T"].type = tf.float32.as_datatype_enum
        del node.attr["output_dtype"]
    else:
        taken[1:1] = [_scope(node) + name for name in ("key", "counter", "algorithm")]
        if node.op == "RandomUniformInt":
            node.attr["dtype"].type = node.attr["Tout"].type
            del node.attr["Tout"]
        node.attr["Tshape"].type = node.attr["T"].type
    if node.op != MULTINOMIAL:
        del node.attr["T"]
    node.op = STATELESS[node.op]
    del node.input[:]
    node.input.extend(taken + waits)
    del node.attr["seed"], node.attr["seed2"]


def _warn_of_seeds(graph_def, looped):
    """Warns of seeded ops that are not converted."""
    nodes = [node for node in graph_def.node if node.name in looped or node.op not in STATELESS]
    nodes += [node for function in graph_def.library.function for node in function.node_def]
    seeded = [n.name for n in nodes if "seed2" in n.attr and (n.attr["seed"].i, n.attr["seed2"].i) != (0, 0)]
    if seeded:
        lines.once("the seeds of random ops in loops and functions do not hold in a compiled step: " + _named(seeded))


def _warn_of_own_seeds(graph_def):
    nodes = [*graph_def.node, *(node for function in graph_def.library.function for node in function.node_def)]
    names = [node.name for node in nodes if node.op in OWN_SEEDS]
    if names:
        lines.once("stateless random ops draw other numbers in a compiled step than in a session: " + _named(names))


def _named(names):
    return "'%s'" % names[0] + ("" if len(names) == 1 else " and %d others" % (len(names) - 1))
