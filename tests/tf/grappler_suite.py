"""What the re-created suites of TensorFlow's mixed-precision pass share: rewrite a graph, see its dtypes, run it."""

import contextlib

import grappler_oracle as oracle
import numpy as np
import tensorflow.compat.v1 as tf

import npu_shim
from npu_shim.rewriter.tables.dtypes import NAMES

PROFILES = ["grappler", "ascend910"]
ATTRS = ("DstT", "T", "element_dtype", "dtype")  # those of an op that gives or holds its values


def values(*shape, low=-1.0, high=1.0):
    """Random float32 values, the same in every run."""
    return np.random.RandomState(sum(shape)).uniform(low, high, shape).astype(np.float32)


def const(value, name):
    """A Const that no folding can reach: it is read through a PlaceholderWithDefault."""
    return tf.placeholder_with_default(tf.constant(value), value.shape, name)


class Case:
    """A graph with its fetches, rewritten for a profile.

    Attributes:
        graph_def: as written.
        rewritten: for a GPU, as the pass would have it; only its dtypes are looked at.
        plan: of `rewritten`.
    """

    def __init__(self, graph, fetches, profile="grappler", precision_mode="allow_mix_precision", **options):
        self.graph_def = graph if isinstance(graph, tf.GraphDef) else graph.as_graph_def()
        self.fetches = [getattr(fetch, "name", fetch) for fetch in fetches]
        self.options = {"profile": profile, "precision_mode": precision_mode, **options}
        self.rewritten, self.plan = npu_shim.rewrite(self.graph_def, self.fetches, device="GPU", **self.options)

    def dtype(self, name):
        """Name of the dtype of a node's values."""
        node = next(node for node in self.rewritten.node if node.name == name)
        attr = next(node.attr[name] for name in ATTRS if name in node.attr)
        [dtype] = set(attr.list.type) or {attr.type}
        return NAMES[dtype]

    def low(self, *names, dtype="float16"):
        """Asserts that nodes are low."""
        dtypes = {name: self.dtype(name) for name in names}
        assert dtypes == dict.fromkeys(names, dtype), dtypes

    def high(self, *names):
        """Asserts that nodes are float32."""
        self.low(*names, dtype="float32")

    @property
    def casts(self):
        """(casts to low precision, casts to float32)."""
        return oracle.casts(self.rewritten, self.graph_def)

    def agrees_with_the_pass(self, **how):
        """Asserts that TensorFlow's own pass makes the same of the graph, for GPUs and for CPUs."""
        theirs = oracle.optimized(self.graph_def, self.fetches, **how)
        assert oracle.difference(self.graph_def, self.rewritten, theirs) == []
        assert oracle.casts(theirs, self.graph_def) == self.casts
        here, _ = npu_shim.rewrite(self.graph_def, self.fetches, device="CPU", **self.options)
        theirs = oracle.optimized(self.graph_def, self.fetches, device="CPU", **how)
        assert oracle.difference(self.graph_def, here, theirs) == []

    def computes_the_same(self, rtol, atol=0.0, feeds=None, init=None):
        """Asserts that what is fetched is finite and alike, as written and rewritten for the CPU; returns both."""
        plain, mixed = self.run_both(feeds, init)
        for a, b in zip(plain, mixed):
            assert np.isfinite(a).all()
            np.testing.assert_allclose(b, a, rtol, atol)
        return plain, mixed

    def run_both(self, feeds=None, init=None):
        """The values of the graph as written and rewritten for the CPU."""
        here, _ = npu_shim.rewrite(self.graph_def, self.fetches, device="CPU", **self.options)
        return [self._run(graph, feeds, init) for graph in (self.graph_def, here)]

    def _run(self, graph_def, feeds, init):
        options = tf.ConfigProto()
        options.graph_options.rewrite_options.disable_meta_optimizer = True  # what we made is what runs
        with tf.Graph().as_default(), tf.Session(config=options) as session:
            tf.import_graph_def(graph_def, name="")
            if init:
                session.run(init)
            return session.run(self.fetches, feeds)


@contextlib.contextmanager
def version_1_graph():
    """Scope of a new graph in which loops and branches are those of TensorFlow 1."""
    was = tf.control_flow_v2_enabled()
    tf.disable_control_flow_v2()
    try:
        with tf.Graph().as_default() as graph:
            yield graph
    finally:
        if was:
            tf.enable_control_flow_v2()
