"""Weights' gradients that interpreted steps sum after a loop instead of in it: TensorFlow's values, and which."""

import os
import re

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

from npu_shim.export import functions

jax = pytest.importorskip("jax", reason="JAX is not installed beside TensorFlow")

from npu_shim.step.control_flow import later_sums  # noqa: E402

STEPS, BATCH, WIDTH = 5, 2, 8
DRAW = np.random.RandomState(3)


def weight(name, *shape, dtype=tf.float32):
    start = (0.4 * DRAW.randn(*shape)).astype(dtype.as_numpy_dtype)
    return tf.get_variable(name, initializer=start, use_resource=True)


def loop(body, start, steps=STEPS, **options):
    return tf.while_loop(lambda t, *_: t < steps, lambda t, *v: [t + 1, *body(t, *v)], [0, *start], **options)[1:]


def of_lengths(x, lengths, p):
    lstmcell = tf.nn.rnn_cell.LSTMCell(WIDTH, use_peepholes=True, num_proj=4)
    return tf.nn.dynamic_rnn(lstmcell, x, lengths, dtype=tf.float32)[0]


def stacked(x, lengths, p):
    cells = [tf.nn.rnn_cell.DropoutWrapper(tf.nn.rnn_cell.LSTMCell(WIDTH), 1.0) for _ in range(2)]
    return tf.nn.dynamic_rnn(tf.nn.rnn_cell.MultiRNNCell(cells), x, dtype=tf.float32)[0]


def both_ways(x, lengths, p):
    cells = [tf.nn.rnn_cell.GRUCell(WIDTH) for _ in range(2)]
    return tf.concat(tf.nn.bidirectional_dynamic_rnn(*cells, x, lengths, dtype=tf.float32)[0], 2)


def plain(multiply, ends=STEPS, **options):
    """h = tanh(what `multiply` makes of h), with a weight [8, 8]."""

    def built(x, lengths, p):
        w = tf.identity(weight("w", WIDTH, WIDTH))
        return loop(lambda t, h: [tf.tanh(multiply(h, w, x, p))], [x[:, 0]], ends, **options)[0]

    return built


def ends_early(x, lengths, p):
    """Data end the loop before its bound."""
    w = tf.identity(weight("w", WIDTH, WIDTH))
    ends = lambda t, h: tf.logical_and(t < 9, t < lengths[0])  # noqa: E731
    return tf.while_loop(ends, lambda t, h: (t + 1, tf.tanh(tf.matmul(h, w))), (0, x[:, 0]))[1]


def in_a_branch(h, w, x, p):
    return tf.cond(p, lambda: tf.matmul(h, w), lambda: h)


def beside_a_branch(h, w, x, p):
    return tf.matmul(tf.cond(p, lambda: h * h, lambda: h), w)


def around_another(h, w, x, p):
    return loop(lambda s, g: [tf.tanh(tf.matmul(g, w))], [h], 2)[0]


def behind_another(h, w, x, p):
    return tf.matmul(loop(lambda s, g: [tf.tanh(g)], [h], 2)[0], w)


def summed_by_hand(x, lengths, p):
    """A sum of products that is no gradient's."""
    start = tf.zeros([WIDTH, WIDTH]) + x[0, 0, 0]
    step = lambda t, h, s: [tf.tanh(h), s + tf.matmul(h, h, transpose_a=True)]  # noqa: E731
    return loop(step, [x[:, 0], start])[1] * weight("w", WIDTH, WIDTH)


def attention(x, lengths, p):
    """A decoder that looks at all of x, and whose products have factors that are used elsewhere too."""
    keys, ask, mix = weight("keys", WIDTH, WIDTH), weight("ask", WIDTH, WIDTH), weight("mix", 2 * WIDTH, WIDTH)
    keys, ask, mix = map(tf.identity, (keys, ask, mix))

    def step(t, h):
        seen = tf.einsum("bsw,wk->bsk", x, keys)
        share = tf.nn.softmax(tf.einsum("bsk,bk->bs", seen, tf.matmul(h, ask)))
        return [tf.tanh(tf.matmul(tf.concat([h, tf.einsum("bs,bsk->bk", share, seen)], 1), mix))]

    return loop(step, [x[:, 0]])[0]


def doubles(x, lengths, p):
    w = tf.identity(weight("w", WIDTH, WIDTH, dtype=tf.float64))
    return loop(lambda t, h: [tf.tanh(tf.matmul(h, w))], [tf.cast(x[:, 0], tf.float64)])[0]


def into_wider(x, lengths, p):
    """The product is float32, the sum float64: it stays in the loop."""
    w = tf.identity(weight("w", WIDTH, WIDTH, dtype=tf.float64))
    return loop(lambda t, h: [tf.tanh(tf.matmul(h, tf.cast(w, tf.float32)))], [x[:, 0]])[0]


def clipped(x, lengths, p):
    """Each step's gradient of the weight is changed before it is added."""

    @tf.custom_gradient
    def bounded(w):
        return tf.identity(w), lambda dw: tf.clip_by_value(dw, -0.01, 0.01)

    w = tf.identity(weight("w", WIDTH, WIDTH))
    return loop(lambda t, h: [tf.tanh(tf.matmul(h, bounded(w)))], [x[:, 0]])[0]


# name -> (layer, how many of its gradients are summed after their loops)
LAYERS = {
    "lengths, peepholes, projection": (of_lengths, 3),
    "two layers, dropout": (stacked, 4),
    "both ways": (both_ways, 8),
    "attention": (attention, 2),
    "transposed weight": (plain(lambda h, w, x, p: tf.matmul(h, w, transpose_b=True)), 1),
    "weight on the left": (plain(lambda h, w, x, p: tf.transpose(tf.matmul(w, h, transpose_b=True))), 1),
    "used twice": (plain(lambda h, w, x, p: tf.matmul(h, w) + tf.matmul(tf.sin(h), w)), 1),
    "used three times": (plain(lambda h, w, x, p: tf.matmul(tf.matmul(tf.matmul(h, w), w), w, transpose_b=True)), 0),
    "of inputs": (plain(lambda h, w, x, p: h + tf.matmul(x[:, 1], w)), 1),
    "product and more": (plain(lambda h, w, x, p: tf.matmul(h, w) + tf.reduce_sum(w)), 0),
    "maximum_iterations": (plain(lambda h, w, x, p: tf.matmul(h, w), 99, maximum_iterations=4), 1),
    "no step": (plain(lambda h, w, x, p: tf.matmul(h, w), 0), 0),
    "ends early": (ends_early, 1),
    "one step at a time": (plain(lambda h, w, x, p: tf.matmul(h, w), parallel_iterations=1), 1),
    "in a branch": (plain(in_a_branch), 0),
    "beside a branch": (plain(beside_a_branch), 1),
    "around another loop": (plain(around_another), 0),
    "behind another loop": (plain(behind_another), 1),
    "by hand": (summed_by_hand, 1),
    "many rows": (plain(lambda h, w, x, p: tf.matmul(tf.tile(h, [8, 1]), w)[:BATCH]), 0),
    "float64": (doubles, 1),
    "float32 into float64": (into_wider, 0),
    "clipped": (clipped, 0),
}
if not os.environ.get("NPU_SHIM_NIGHTLY"):
    LAYERS = dict(list(LAYERS.items())[::2])  # half of them by day


def gradients(layer):
    """A layer's results and their gradients by its weights and by x."""
    x, lengths = tf.placeholder(tf.float32, [BATCH, STEPS, WIDTH], "x"), tf.placeholder(tf.int32, [BATCH], "n")
    y = layer(x, lengths, tf.placeholder(tf.bool, [], "p"))
    return [y, *tf.gradients(tf.reduce_sum(tf.sin(y) * y), [x, *tf.trainable_variables(tf.get_variable_scope().name)])]


def fed(graph):
    """Values of the placeholders of all layers."""
    values = {"x": DRAW.randn(BATCH, STEPS, WIDTH).astype(np.float32), "n": np.int32([4, 2]), "p": np.bool_(True)}
    ops = [op for op in graph.get_operations() if op.type == "Placeholder"]
    return {op.name + ":0": values[op.name.rpartition("/")[2]] for op in ops}


def lowered(session, fetches, feeds, **options):
    """(Fetched values of a step, the program's sums that are made after loops, its text)."""
    planned, plan = [], later_sums._planned
    later_sums._planned = lambda *given: planned.append(plan(*given)) or planned[-1]
    try:
        step = functions.as_jax(session, fetches, list(feeds), **options)
        with jax.enable_x64(True):
            program = jax.jit(step).lower(step.state, feeds)
            _, fetched = program.compile()(step.state, feeds)
    finally:
        later_sums._planned = plan
    sums = [one for loop in planned for one in loop.sums]
    return [np.asarray(fetched[name]) for name in fetches if name in fetched], sums, program.as_text()


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_of_loops_are_the_sessions(name):
    layer, count = LAYERS[name]
    with sessions.control_flow(1), tf.Graph().as_default() as graph:
        fetches = [gradient for gradient in gradients(layer) if gradient is not None]
        tf.global_variables_initializer()
    feeds = fed(graph)
    with tf.Session(graph=graph) as session:
        session.run("init")
        expected = session.run(fetches, feeds)
        values, sums, _ = lowered(session, [fetch.name for fetch in fetches], feeds)
    for fetch, one, actual in zip(fetches, expected, values):
        assert actual.dtype == one.dtype
        # XLA's tanh is a few roundings off TensorFlow's; the steps of a loop multiply them
        np.testing.assert_allclose(actual, one, 0, 2e-5 * max(1, np.abs(one).max()), err_msg=fetch.name)
    assert len(sums) == count


MODES = {"float16": "allow_mix_precision", "bfloat16": "allow_mix_precision_bf16"}


@pytest.mark.parametrize("low", MODES)
def test_16_bit_factors_are_summed_in_float32(low):
    """Weights' gradients are nearer to float64's on the same rows than one rounding of each step's product allows."""
    steps, options = 24, {"precision_mode": MODES[low], "profile": "gpu"}
    with sessions.control_flow(1), tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [steps, BATCH, WIDTH], "x")
        w = tf.get_variable("w", [WIDTH, WIDTH], initializer=tf.zeros_initializer(), use_resource=True)
        rows = tf.TensorArray(tf.float32, steps, element_shape=[BATCH, WIDTH]).unstack(x)
        kernel = tf.identity(w)
        y = loop(lambda t, s: [s + tf.tanh(tf.matmul(rows.read(t), kernel))], [tf.zeros([BATCH, WIDTH])], steps)[0]
        gradient = tf.gradients(tf.reduce_sum(y), w)[0]
        tf.global_variables_initializer()
    # whole numbers are the same in 16 bits; tanh'(0) is 1, so the gradient is the sum of x over steps and batch
    given = DRAW.randint(-100, 100, [steps, BATCH, WIDTH]).astype(np.float32)
    with tf.Session(graph=graph) as session:
        session.run("init")
        (actual,), sums, text = lowered(session, [gradient.name], {"x:0": given}, **options)
    assert sums
    assert re.search(r"dot_general.*tensor<24x2x8x%s>" % {"float16": "f16", "bfloat16": "bf16"}[low], text)
    expected = np.tile(given.sum((0, 1))[:, None], WIDTH)
    assert abs(expected).max() > 256  # bfloat16 has no odd numbers from here on
    np.testing.assert_array_equal(actual, expected)


def test_rows_that_are_not_finite():
    """What is not finite in one step is not finite in the sum, where it is in a session's."""
    with sessions.control_flow(1), tf.Graph().as_default() as graph:
        fetches = gradients(plain(lambda h, w, x, p: tf.matmul(h, w)))
        tf.global_variables_initializer()
    with tf.Session(graph=graph) as session:
        session.run("init")
        for value in (np.inf, np.nan):
            given = DRAW.randn(BATCH, STEPS, WIDTH).astype(np.float32)
            given[0, 0, 2] = value
            (expected,) = session.run(fetches[2:], {"x:0": given})
            (actual,), sums, _ = lowered(session, [fetches[2].name], {"x:0": given})
            np.testing.assert_array_equal(np.isfinite(actual), np.isfinite(expected))
            assert sums
            assert not np.isfinite(actual).all()


def test_training_and_a_second_gradient_of_the_loop():
    """Adam on a GRU, whose gradients wait for each other, beside clipped ones of another loss: a session's steps."""
    with sessions.control_flow(1), tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [BATCH, STEPS, WIDTH], "x")
        draw = tf.random_uniform_initializer(-0.5, 0.5, seed=5)
        y = tf.nn.dynamic_rnn(tf.nn.rnn_cell.GRUCell(WIDTH, kernel_initializer=draw), x, dtype=tf.float32)[0]
        loss = tf.reduce_mean(tf.square(y - 0.3))
        clipped, norm = tf.clip_by_global_norm(tf.gradients(tf.reduce_sum(y[:, -1]), tf.trainable_variables()), 0.05)
        train = tf.train.AdamOptimizer(0.05).minimize(loss, name="train")
        tf.global_variables_initializer()
    fetches = [loss, norm, *clipped, train]
    with tf.Session(graph=graph) as session:
        session.run("init")
        names = [fetch.name for fetch in fetches]
        step = functions.as_jax(session, names, ["x:0"])
        compiled, state = jax.jit(step), step.state
        assert len(lowered(session, names, {"x:0": np.ones([BATCH, STEPS, WIDTH], "f")})[1]) == 8
        for number in range(10):
            given = np.float32(np.sin(np.arange(BATCH * STEPS * WIDTH) + number)).reshape([BATCH, STEPS, WIDTH])
            state, fetched = compiled(state, {"x:0": given})
            for name, expected in zip(names[:-1], session.run(fetches[:-1], {x: given})):
                np.testing.assert_allclose(fetched[name], expected, 1e-4, 1e-5)
            session.run(train, {x: given})


@pytest.mark.parametrize(("devices", "count"), [(1, 0), (15, 0), (16, 1)])
def test_a_device_keeps_its_part_of_a_row(monkeypatch, devices, count):
    """A sum of 64 bytes, rows of 1024, of which each of 16 devices has 64."""
    planned, plan = [], later_sums._planned
    monkeypatch.setattr(later_sums, "_planned", lambda *given: planned.append(plan(*given)) or planned[-1])
    rows = DRAW.randn(5, 64, 4).astype(np.float32)

    def gram(row):
        return jax.lax.dot_general(row, row, (((0,), (0,)), ((), ())))

    first = jax.numpy.int32(0), jax.numpy.zeros([4, 4], np.float32)
    step = jax.jit(
        lambda rows: later_sums.while_loop(
            lambda carried: carried[0] < 5, lambda carried: (carried[0] + 1, carried[1] + gram(rows[carried[0]])),
            first, 5, devices,
        )
    )  # fmt: skip
    np.testing.assert_allclose(step(rows)[1], np.einsum("tbi,tbj->ij", rows, rows), rtol=2.0**-16, atol=2.0**-14)
    assert [len(loop.sums) for loop in planned] == [count]
