"""Functions that take a reference variable's memory see what plain TensorFlow shows them, whoever waits for the write.

For each case   early = ones x v    w: v += 1 after early    result = a call that reads v    v += 1 after result
The call, what it takes, or an op in its body waits for w; so it reads v + 1, of the memory that was read before w.
"""

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf
from tensorflow.python.framework import function  # noqa: TID251  # Defuns have no public API

import npu_shim

pytestmark = pytest.mark.skipif(tf.__version__.startswith("1."), reason="tf.function of 1.15 takes no references")
START = np.arange(16, dtype=np.float32).reshape(4, 4) % 3
ONES = np.ones([4, 4], np.float32)
HOW = (
    {"precision_mode": "allow_mix_precision"},
    {"precision_mode": "allow_mix_precision", "profile": "gpu"},
    {"precision_mode": "allow_mix_precision", "profile": "grappler"},
    {"precision_mode": "allow_mix_precision", "device": "GPU"},  # TensorFlow's CPU runs such small products in float16
    {"precision_mode": "force_fp16"},
)


def product(t):
    return tf.matmul(tf.constant(ONES), t)


def defined(v):
    defined = function.Defun(tf.float32)(product)(v)
    defined.set_shape([4, 4])
    return defined


def called(body):
    return tf.function(body, autograph=False)


def nested(v):
    return called(lambda t: called(product)(tf.reshape(t, [4, 4])))(v)


def chosen(v):
    return tf.cond(tf.placeholder_with_default(True, []), lambda: product(v), lambda: -v)


def branched(v):
    return tf.switch_case(tf.placeholder_with_default(1, []), [lambda: -v, lambda: product(v)])


def repeated(v):
    return tf.while_loop(lambda i, _: i < 2, lambda i, t: (i + 1, product(v) + 0.0 * t), [0, tf.zeros([4, 4])])[1]


def after(w, reads):
    with tf.control_dependencies([w]):
        return reads()


def body_waits(v, w):
    return called(lambda t, written: after(written, lambda: tf.matmul(t, tf.constant(ONES))))(v, tf.identity(w))


def read_in_body_waits(v, w):
    return called(lambda t, written: product(after(written, lambda: tf.identity(t))))(v, tf.identity(w))


def reader_waits_for_call(v, w):
    counted = function.Defun(tf.float32)(product)(tf.identity(w))
    return after(counted, lambda: product(v))


CASES = {
    "a Defun": lambda v, w: after(w, lambda: defined(v)),
    "a function": lambda v, w: after(w, lambda: called(product)(v)),
    "two readers": lambda v, w: after(w, lambda: called(lambda t: product(t) + tf.matmul(t, tf.constant(ONES)))(v)),
    "a function in a function": lambda v, w: after(w, lambda: nested(v)),
    "a branch": lambda v, w: after(w, lambda: chosen(v)),
    "one of some branches": lambda v, w: after(w, lambda: branched(v)),
    "a loop": lambda v, w: after(w, lambda: repeated(v)),
    "a read that waits": lambda v, w: called(product)(after(w, lambda: tf.identity(v))),
    "an op in the body waits": body_waits,
    "a read in the body waits": read_in_body_waits,
    "a reader waits for a call": reader_waits_for_call,
}


def build():
    """The graph of all cases; returns the names of what is fetched, by case."""
    fetches = {}
    for case, make in CASES.items():
        with tf.variable_scope(case.replace(" ", "_"), use_resource=False):
            v = tf.get_variable("v", initializer=START)
            memory = v.value()
            early = product(memory)
            with tf.control_dependencies([early]):
                written = tf.assign_add(v, ONES)
            result = tf.maximum(make(memory, written), -1000.0)  # TensorFlow does not wait for a body, but for this
            with tf.control_dependencies([result]):
                again = tf.assign_add(v, ONES)
            with tf.control_dependencies([again]):
                fetches[case] = [tf.identity(t).name for t in (early, result, product(memory))]
    tf.global_variables_initializer()
    return fetches


def run(graph_def, fetches, config=None, grappler=True):
    config = config or tf.ConfigProto()
    config.graph_options.rewrite_options.min_graph_nodes = -1
    config.graph_options.rewrite_options.disable_meta_optimizer = not grappler
    return sessions.run_graph(graph_def, fetches, config=config, initializer="init")


def differing(values, expected):
    return [case for case in CASES if not all(map(np.array_equal, values[case], expected[case]))]


@pytest.fixture(scope="module")
def graph():
    with sessions.control_flow(2), tf.Graph().as_default() as graph:
        fetches = build()
    return graph.as_graph_def(), fetches


@pytest.fixture(scope="module")
def expected(graph):
    return run(*graph, grappler=False)


def test_plain_tensorflow_reads_what_was_written(graph, expected):
    assert differing(run(*graph), expected) == []
    for case in CASES.keys() - {"two readers", "an op in the body waits"}:
        assert (expected[case][1] == (START + 1).sum(0)).all(), case


@pytest.mark.parametrize("how", HOW)
def test_a_rewritten_graph_survives_tensorflows_optimizers(graph, expected, how):
    graph_def, fetches = graph
    kept = [name for names in fetches.values() for name in names]
    rewritten, _ = npu_shim.rewrite(graph_def, [*kept, "init"], **how)
    assert any(node.op == "Cast" for node in rewritten.node)
    assert differing(run(rewritten, fetches, grappler=False), expected) == []
    assert differing(run(rewritten, fetches), expected) == []


@pytest.mark.parametrize("mode", ["allow_mix_precision", "force_fp16"])
def test_in_a_session(graph, expected, mode, patched):
    graph_def, fetches = graph
    assert differing(run(graph_def, fetches, sessions.config(precision_mode=mode)), expected) == []
