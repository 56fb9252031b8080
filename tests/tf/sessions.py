"""What session tests share: configs in the user's words, and the dtypes that ran, read from the partition graphs."""

import contextlib
import re

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from npu_shim import cli
from npu_shim.options import engine
from npu_shim.rewriter.graph.emulation import ROUNDED

NEEDS_ENGINE = [
    pytest.mark.skipif(not (engine.has_jax() or engine.interpreter()), reason="no JAX, and NPU_SHIM_JAX names none"),
    pytest.mark.skipif(tf.__version__.startswith("1."), reason="the engine needs TensorFlow 2.15 or later"),
]
# steps that are compiled in this process, where that is cheap; at night in a worker too
COMPILED = [*NEEDS_ENGINE, *(() if engine.has_jax() else (pytest.mark.nightly,))]


def unless_in_worker(test):
    """Decorator for a test that takes long in a worker: nightly there, but for TensorFlow 1.15, which has no other."""
    return test if engine.has_jax() or tf.__version__.startswith("1.") else pytest.mark.nightly(test)


def config(**parameters):
    """A ConfigProto with an NpuOptimizer entry, as a user writes it; ints go to `i`, bools to `b`, the rest to `s`."""
    config = tf.ConfigProto()
    entry = config.graph_options.rewrite_options.custom_optimizers.add()
    entry.name = "NpuOptimizer"
    for key, value in parameters.items():
        if isinstance(value, bool):
            entry.parameter_map[key].b = value
        elif isinstance(value, int):
            entry.parameter_map[key].i = value
        else:
            entry.parameter_map[key].s = tf.compat.as_bytes(value)
    return config


def command(capsys, *argv):
    """Runs the command in this process; returns (exit status, stdout, stderr)."""
    status = cli.main([str(word) for word in argv])
    streams = capsys.readouterr()
    return status, streams.out, streams.err


@contextlib.contextmanager
def control_flow(version):
    """Graphs are built with control flow of version 1 or 2 within the block."""
    was = tf.control_flow_v2_enabled()
    (tf.enable_control_flow_v2 if version == 2 else tf.disable_control_flow_v2)()
    try:
        yield
    finally:
        (tf.enable_control_flow_v2 if was else tf.disable_control_flow_v2)()


def named(name):
    """The variable of the current graph with this name; by name a session gives the handle of a resource variable."""
    return next(variable for variable in tf.global_variables() if variable.name == name)


def assert_close(actual, expected, rtol=0.0, atol=0.0):
    """Lists of arrays are equally long, and their arrays alike within tolerances; to the bit without any."""
    assert len(actual) == len(expected)
    for one, other in zip(actual, expected):
        np.testing.assert_allclose(one, other, rtol, atol)


def seen_dtype(node, nodes):
    """The name of the dtype that an executed node has for those who read it.

    On a CPU a float32 kernel may stand for a low-precision one; oneDNN's convolutions lose the attribute that says so.
    """
    if node.op.startswith("_MklNative"):
        readers = [other for other in nodes if node.name in other.input and ROUNDED in other.attr]
        return tf.as_dtype(readers[0].attr[ROUNDED].type if readers else node.attr["T"].type).name
    return tf.as_dtype(decided_dtype(node)).name


def decided_dtype(node, attr="T"):
    """The number of the dtype that a rewritten node has for those who read it; `attr` is its type attribute."""
    return node.attr[ROUNDED].type if ROUNDED in node.attr else node.attr[attr].type


@contextlib.contextmanager
def started(config=None):
    """A session of the current graph, whose global variables have their initial values."""
    with tf.Session(config=config) as session:
        session.run(tf.global_variables_initializer())
        yield session


def opened(kind="pjrt", mode="must_keep_origin_dtype"):
    """A session with an engine, whose variables have their initial values, the same ones each time."""
    session = tf.Session(config=config(precision_mode=mode, npu_shim_profile="gpu", npu_shim_engine=kind))
    session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
    return session


def run_graph(graph_def, fetches, feeds=None, config=None, initializer=()):
    """What a GraphDef's fetches are in a session with `config`, once `initializer` has run."""
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(graph_def, name="")
    with tf.Session(graph=graph, config=config) as session:
        session.run(initializer)
        return session.run(fetches, feeds)


def evaluated(build, feeds=None, seed=None):
    """What `build` makes in a graph of its own, as a plain session computes it."""
    with tf.Graph().as_default():
        tf.set_random_seed(seed)
        fetches = build()
        with started() as session:
            return session.run(fetches, feeds)


class Ran:
    """Runs fetches once and knows the nodes that were executed."""

    def __init__(self, session, fetches, feeds=None):
        seen = tf.RunMetadata()
        options = tf.RunOptions(output_partition_graphs=True)
        self.values = session.run(fetches, feeds, options=options, run_metadata=seen)
        self.nodes = [node for graph in seen.partition_graphs for node in graph.node]

    def dtypes(self, *ops):
        """{node name: the dtype that its readers see} for the executed nodes of these op types, oneDNN's form too."""
        return {
            node.name: seen_dtype(node, self.nodes)
            for node in self.nodes
            if node.op in ops or re.sub("^_Mkl(Native)?", "", node.op) in ops
        }


def run(fetches, feeds=None, **parameters):
    """A Ran of the graph with fresh variables, in mixed precision unless `parameters` say otherwise."""
    with started(config(**{"precision_mode": "allow_mix_precision", **parameters})) as session:
        return Ran(session, fetches, feeds)


def both(fetches, feeds=None):
    """The run in mixed precision and its values in float32."""
    plain = run(fetches, feeds, precision_mode="must_keep_origin_dtype", npu_shim_profile="gpu")
    return run(fetches, feeds), plain.values
