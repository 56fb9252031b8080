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

from npu_shim.rewriter.analysis import calls
from npu_shim.rewriter.analysis.frames import frames
from npu_shim.rewriter.ir import graphdef
from npu_shim.rewriter.ir.attributes import DType
from npu_shim.rewriter.ir.module import Module
from npu_shim.session import lines

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
INT32, FLOAT32 = DType(tf.int32.as_datatype_enum), DType(tf.float32.as_datatype_enum)


def initial_state() -> np.ndarray:
    """Returns a new state: int64 [2], a base drawn from the system and step 0."""
    return np.array([int.from_bytes(os.urandom(4), "little"), 0], np.int64)


def to_stateless(module: Module, context: Any = None) -> None:
    """Makes the random ops outside of loops stateless, in a module without reference variables.

    It then has a variable STATE (int64 [2]) and an op named ADVANCE that adds 1 to the step.
    """
    if not hasattr(tf.raw_ops, STATELESS["RandomUniform"]):  # TensorFlow 1.15, which converts no step
        return
    graph = module.graph
    _warn_of_seeds(module, frames(graph))
    _warn_of_own_seeds(module)
    nodes = chosen(module)
    if nodes:
        graphdef.insert(graph, [*(proto for node in nodes for proto in _seed_nodes(node)), *_state_nodes()])
        for node in nodes:
            _take_stateless_form(node)


def chosen(module: Module) -> list[Any]:
    """The nodes that `to_stateless` converts."""
    if module.ops().isdisjoint(STATELESS):
        return []
    looped = frames(module.graph)
    return [node for node in module.graph if node.op in STATELESS and not looped.get(node)]


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
    seeds = _seeds(node)
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
                (_rows if node.op == SHUFFLE else _classes)(tf.placeholder(node.attrs["T"], name="value"), draw)
    seed_nodes = [proto for proto in graph.as_graph_def().node if proto.op != "Placeholder"]
    for name, value in zip(("value", "count"), node.inputs if node.op in (SHUFFLE, MULTINOMIAL) else ()):
        seed_nodes.append(tf.NodeDef(name=_scope(node) + name, op="Identity", input=[str(value)]))
        seed_nodes[-1].attr["T"].type = node.attrs["T"] if name == "value" else INT32
    return seed_nodes


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
    attrs = node.attrs
    if node.op == SHUFFLE:
        taken = ["value", "order:1", "axis"]
        attrs["Tparams"], attrs["Tindices"], attrs["Taxis"] = attrs["T"], INT32, INT32
    elif node.op == MULTINOMIAL:
        taken = ["scores", "axis"]
        attrs["output_type"], attrs["Tidx"], attrs["T"] = attrs["output_dtype"], INT32, FLOAT32
        del attrs["output_dtype"]
    else:
        taken = ["key", "counter", "algorithm"]
        if node.op == "RandomUniformInt":
            attrs["dtype"] = attrs["Tout"]
            del attrs["Tout"]
        attrs["Tshape"] = attrs["T"]
    values = [node.graph.value(_scope(node) + name) for name in taken]
    keeps_own = node.op not in (SHUFFLE, MULTINOMIAL)
    node.set_inputs([node.inputs[0], *values, *node.inputs[1:]] if keeps_own else values)
    for name in ("seed", "seed2", *(() if node.op == MULTINOMIAL else ("T",))):
        if name in attrs:
            del attrs[name]
    node.set_op(STATELESS[node.op])


def _seeds(node):
    """The seeds of a random op, of the graph and its own; (0, 0) for none."""
    return node.attrs.get("seed", 0), node.attrs.get("seed2", 0)


def _warn_of_seeds(module, looped):
    """Warns of seeded ops that are not converted."""
    nodes = [node for node in module.graph if node.op not in STATELESS or looped.get(node)]
    nodes += _in_functions(module)
    seeded = [node.name for node in nodes if "seed2" in node.attrs and _seeds(node) != (0, 0)]
    if seeded:
        lines.once("the seeds of random ops in loops and functions do not hold in a compiled step: " + _named(seeded))


def _warn_of_own_seeds(module):
    names = [node.name for node in [*module.graph, *_in_functions(module)] if node.op in OWN_SEEDS]
    if names:
        lines.once("stateless random ops draw other numbers in a compiled step than in a session: " + _named(names))


def _in_functions(module):
    """The nodes of the functions that a step calls; the library may hold others, of data sets that a session runs."""
    return [node for body in calls.callers_first(module.graph, lambda node: True) for node in body]


def _named(names):
    return "'%s'" % names[0] + ("" if len(names) == 1 else " and %d others" % (len(names) - 1))
