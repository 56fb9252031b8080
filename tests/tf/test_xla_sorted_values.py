"""Compiled steps whose sizes depend on what tf.sort, tf.argsort and tf.nn.top_k give, beside a session."""

import contextlib

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from passes_as_text import after, stays

import npu_shim
from npu_shim.rewriter.errors import PlanError
from npu_shim.xla.passes.shapes import sorted_values

pytestmark = pytest.mark.skipif(tf.__version__.startswith("1."), reason="compile_step needs TensorFlow 2.15")
BATCHES = [np.random.RandomState(seed).randn(12).astype(np.float32) for seed in range(3)]


def count(mask):
    return tf.reduce_sum(tf.cast(mask, tf.int32))


def best(x):
    return tf.nn.top_k(x, 9)[0]


def weighted(x):
    return best(x * tf.get_variable("w", initializer=np.full(12, 1.5, np.float32)))


def in_a_branch(x):
    chosen = tf.cond(x[0] < 9, lambda: best(x), lambda: best(x) + 1)
    return tf.boolean_mask(chosen, chosen > 0.5)


def masked_in_a_branch(x):
    return tf.cond(
        x[0] < 9, lambda: tf.reduce_sum(tf.boolean_mask(best(x), best(x) > 0.5)), lambda: tf.reduce_sum(x)
    )


USES = {
    "mask": lambda x: tf.boolean_mask(best(x), best(x) > 0.5),
    "mask of places": lambda x: tf.boolean_mask(x[:9], tf.nn.top_k(x, 9)[1] < 5),
    "sorted": lambda x: tf.where(tf.sort(x) < 0),
    "ranks": lambda x: tf.boolean_mask(x, tf.argsort(tf.argsort(x)) < 5),
    "rows": lambda x: tf.where(tf.sort(tf.reshape(x, [3, 4])) < 0),
    "range": lambda x: tf.reduce_sum(tf.range(count(best(x) > 0.5))),
    "ones": lambda x: tf.reduce_sum(tf.ones([count(best(x) > 0.5), 2])),
    "tile": lambda x: tf.reduce_sum(tf.tile(x[:1], [count(best(x) > 0.5)])),
    "above the third": lambda x: tf.reduce_sum(tf.ones([count(x >= tf.nn.top_k(x, 3)[0][-1])])),
    "integers": lambda x: tf.where(tf.sort(tf.cast(x * 9, tf.int32)) > 3),
    "weight": lambda x: tf.boolean_mask(weighted(x), best(x) > 0.5),
    "branch": in_a_branch,
    "mask in a branch": masked_in_a_branch,
}


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("use", USES)
def test_sizes_of_sorted_values_are_those_of_the_data(use, version, request):
    """Was silent: a mask had no rows, and a range as many as there may be."""
    request.getfixturevalue("control_flow_of_version_%d" % version)
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.float32, [12], "x")
        result = USES[use](x)
        session.run(tf.global_variables_initializer())
        step = npu_shim.compile_step(session, [result], [x])
        for batch in BATCHES:
            expected, actual = session.run(result, {x: batch}), step({x: batch})[0]
            assert np.shape(actual) == np.shape(expected)
            np.testing.assert_allclose(actual, expected, rtol=1e-6)


SORTED = "x:Placeholder{dtype=float32, shape=<3,4>} k:Const{dtype=int32, value=int32<>(2)} "
TOP = SORTED + "t:TopKV2{T=float32}(x, k) "
GATHERED = ("t/gathered/values", "t/gathered/places")


@pytest.mark.parametrize(("rest", "users"), [
    ("g:Greater{T=float32}(t, y) y:Const{dtype=float32, value=float32<>(1.0)} w:Where{T=bool}(g)", {"g": 0}),
    ("c:Cast{SrcT=int32, DstT=int64}(t:1) w:Where{T=int64}(c)", {"c": 1}),
    ("""s:Sum{T=int32, Tidx=int32}(t:1, a) a:Const{dtype=int32, value=int32<2>(0, 1)}
    f:Fill{T=float32, index_type=int32}(r, v) v:Const{dtype=float32, value=float32<>(1.0)}
    r:ExpandDims{T=int32, Tdim=int32}(s, z) z:Const{dtype=int32, value=int32<>(0)}""", {"s": 1}),
])  # fmt: skip
def test_what_may_decide_a_size_is_gathered(rest, users):
    shown = after(sorted_values.gather, TOP + rest).splitlines()
    for name, number in users.items():
        [line] = [line for line in shown if line.startswith(name + ":")]
        assert "(%s" % GATHERED[number] in line


@pytest.mark.parametrize("rest", [
    "g:Exp{T=float32}(t) return g:0=g",
    """s:Shape{T=float32, out_type=int32}(t) f:Fill{T=float32, index_type=int32}(s, v)
    v:Const{dtype=float32, value=float32<>(1.0)}""",
    "w:Where{T=float32}(x) g:Exp{T=float32}(t)",
])  # fmt: skip
def test_what_decides_no_size_stays(rest):
    stays(sorted_values.gather, TOP + rest)


def ids_that_are_no_longer_distinct():
    x = tf.placeholder(tf.float32, [4], "x")
    wide = tf.placeholder(tf.int64, [4], "wide")
    matrix = tf.placeholder(tf.int32, [4, 2], "matrix")
    return {
        "unique of floats": (x, [1.2, 1.7, 3, 1.2], tf.cast(tf.unique(x)[0], tf.int32)),
        "narrower": (wide, [1, 2**32 + 1, 3, 1], tf.cast(tf.unique(wide)[0], tf.int32)),
        "rows": (matrix, [[1, 1], [1, 2], [1, 1], [3, 1]], tf.raw_ops.UniqueV2(x=matrix, axis=[0])[0]),
    }


@pytest.mark.parametrize("case", ["unique of floats", "narrower", "rows"])
def test_equal_ids_of_distinct_values_are_no_distinct_ids(case):
    """Was silent: of two gradients for one row, the optimizer's slots saw one."""
    with tf.Graph().as_default(), tf.Session() as session:
        feed, value, ids = ids_that_are_no_longer_distinct()[case]
        table = tf.get_variable("table", initializer=np.full((5, 1), 0.5, np.float32))
        train = tf.train.MomentumOptimizer(0.1, 0.9).minimize(tf.reduce_sum(tf.nn.embedding_lookup(table, ids)))
        session.run(tf.global_variables_initializer())
        with contextlib.suppress(PlanError):  # where XLA cannot know how many ids there are
            step = npu_shim.compile_step(session, [train], [feed])
            step({feed: value})
            session.run(train, {feed: value})
            np.testing.assert_allclose(step.state()["table"], session.run(table))


def test_distinct_ids_stay_distinct_in_a_wider_type():
    with tf.Graph().as_default(), tf.Session() as session:
        ids = tf.placeholder(tf.int32, [4], "ids")
        table = tf.get_variable("table", initializer=np.full((5, 1), 0.5, np.float32))
        rows = tf.nn.embedding_lookup(table, tf.cast(tf.unique(ids)[0], tf.int64))
        train = tf.train.MomentumOptimizer(0.1, 0.9).minimize(tf.reduce_sum(rows))
        session.run(tf.global_variables_initializer())
        step = npu_shim.compile_step(session, [train], [ids])
        step({ids: [1, 3, 1, 2]})
        session.run(train, {ids: [1, 3, 1, 2]})
        np.testing.assert_allclose(step.state()["table"], session.run(table))
