"""The automatic loss scale in the forms that scripts have: towers, clipping, accumulation, GANs, wrappers, Keras."""

import logging

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

from npu_shim import loss_scale
from npu_shim.loss_scale import automatic
from npu_shim.loss_scale.steps import overflow

pytestmark = pytest.mark.usefixtures("control_flow_of_version_1", "without_automatic_scale")
START = 2.0**15
GOOD = np.linspace(-1.0, 1.0, 12).reshape(3, 4).astype(np.float32)
BAD = np.full([3, 4], np.inf, np.float32)


def net(x, name="w", size=2, resource=True):
    values = np.linspace(-0.5, 0.7, 4 * size).reshape(4, size).astype(np.float32)
    w = tf.get_variable(name, initializer=values, use_resource=resource)
    return w, tf.reduce_mean(tf.square(tf.tanh(tf.matmul(x, w)) - 1.0))


class Trained:
    """The values after runs of the ops that `build(x)` returns, one list of feeds and fetched ops a run."""

    def __init__(self, build, feeds=(GOOD, GOOD, GOOD, BAD, GOOD)):
        with tf.Graph().as_default(), tf.Session() as session:
            self.step = tf.train.get_or_create_global_step()
            x = tf.placeholder(tf.float32, [None, 4], "x")
            trains = build(x)
            self.names = sorted(variable.name for variable in tf.global_variables())
            session.run(tf.global_variables_initializer())
            for feed in feeds:
                for train in trains if isinstance(trains, list) else [trains]:
                    session.run(train, {x: feed})
            self.step = session.run(self.step)
            self.values = {variable.name: session.run(variable) for variable in tf.global_variables()}
            state = {variable.name: session.run(variable) for variable in automatic.variables()}
            self.scales = [state[name] for name in sorted(state) if "/loss_scale:" in name or "/loss_scale_1:" in name]
            self.counts = [state[name].tolist()[:3] for name in sorted(state) if "loss_scale_steps" in name]


def same(one, other):
    assert one.names == other.names
    for name in one.names:
        np.testing.assert_array_equal(one.values[name], other.values[name])


def against_plain(build, counts=((5, 1, 0),)):
    """Trains as plain TensorFlow does without the bad batch, and skips and counts the bad one."""
    plain = Trained(build, feeds=[GOOD] * 4)
    automatic.install()
    scaled = Trained(build)
    same(scaled, plain)
    assert scaled.step == plain.step
    assert sorted(map(tuple, scaled.counts)) == sorted(counts)
    return scaled


def clipped_by_norm(x):
    w, loss = net(x)
    gradients, _ = tf.clip_by_global_norm(tf.gradients(loss, [w]), 0.1)
    return tf.train.AdamOptimizer(0.1).apply_gradients(zip(gradients, [w]), tf.train.get_global_step())


def towers(x):
    gradients, optimizer = [], tf.train.MomentumOptimizer(0.1, 0.9)
    for number in range(2):
        with tf.variable_scope("net", reuse=number > 0), tf.name_scope("tower_%d" % number):
            _, loss = net(x[number : number + 1])
            gradients.append(optimizer.compute_gradients(loss, gate_gradients=tf.train.Optimizer.GATE_GRAPH))
    mean = [(tf.reduce_mean(tf.stack([g for g, _ in pairs]), 0), pairs[0][1]) for pairs in zip(*gradients)]
    return optimizer.apply_gradients(mean, tf.train.get_global_step())


def gradient_penalty(x):
    _, loss = net(x)
    (slope,) = tf.gradients(loss, [x])
    penalty = tf.square(tf.norm(slope) - 1.0)
    return tf.train.AdamOptimizer(0.1).minimize(loss + penalty, tf.train.get_global_step())


def in_two_parts(x):
    w, _ = net(x)
    hidden = tf.tanh(tf.matmul(x, w))
    (upstream,) = tf.gradients(tf.reduce_mean(tf.square(hidden)), [hidden])
    gradients = tf.gradients([hidden], [w], grad_ys=[upstream], colocate_gradients_with_ops=True)
    return tf.train.AdamOptimizer(0.1).apply_gradients(zip(gradients, [w]), tf.train.get_global_step())


def of_several_losses(x):
    w, loss = net(x)
    optimizer = tf.train.AdamOptimizer(0.1)
    gradients = tf.gradients([loss, tf.reshape(loss, [1]), x], [w], aggregation_method=2, stop_gradients=[x])
    return optimizer.apply_gradients(zip(gradients, [w]), tf.train.get_global_step())


def with_a_moving_average(x):
    w, loss = net(x)
    train = tf.train.AdamOptimizer(0.1).minimize(loss, tf.train.get_global_step())
    with tf.control_dependencies([train]):
        return tf.train.ExponentialMovingAverage(0.9).apply([w])


def with_a_step_by_hand(x):
    """As BERT: the global step moves at a skipped step as well, as it does under contrib's LossScaleOptimizer."""
    _, loss = net(x)
    train = tf.train.AdamOptimizer(0.1).minimize(loss)
    return tf.group(train, tf.train.get_global_step().assign_add(1))


class Wrapper(tf.train.Optimizer):
    """As Horovod's DistributedOptimizer and contrib's wrappers: works on the gradients, and hands them on."""

    def __init__(self, optimizer):
        super().__init__(False, "Wrapper")
        self._optimizer = optimizer

    def compute_gradients(self, *arguments, **options):
        pairs = self._optimizer.compute_gradients(*arguments, **options)
        return [(tf.identity(gradient), variable) for gradient, variable in pairs]

    def apply_gradients(self, *arguments, **options):
        return self._optimizer.apply_gradients(*arguments, **options)


def wrapped(x):
    _, loss = net(x)
    return Wrapper(tf.train.AdamOptimizer(0.1)).minimize(loss, tf.train.get_global_step())


def by_keywords(x):
    w, loss = net(x, resource=False)
    pairs = list(zip(tf.gradients(loss, [w]), [w]))
    optimizer = tf.train.AdamOptimizer(0.1)
    return optimizer.apply_gradients(grads_and_vars=pairs, name="go", global_step=tf.train.get_global_step())


def of_a_function(x):
    """A loss that is a function goes by GradientTape."""
    w = tf.get_variable("w", initializer=np.ones([4, 2], np.float32), use_resource=True)
    step = tf.train.get_global_step()
    return tf.train.AdamOptimizer(0.1).minimize(lambda: tf.reduce_mean(tf.tanh(tf.matmul(x, w))), step, var_list=[w])


def through_a_spectrum(x):
    """The gradients of one of its calls are complex."""
    w, _ = net(x)
    spectrum = tf.fft(tf.cast(tf.matmul(x, w), tf.complex64))
    (upstream,) = tf.gradients(tf.reduce_mean(tf.square(tf.abs(spectrum) - 1.0)), [spectrum])
    gradients = tf.gradients(spectrum, [w], grad_ys=[upstream])
    return tf.train.AdamOptimizer(0.1).apply_gradients(zip(gradients, [w]), tf.train.get_global_step())


def with_an_array(x):
    """One of its gradients is no tensor."""
    w, loss = net(x)
    other = tf.get_variable("other", initializer=np.ones([2], np.float32))
    optimizer = tf.train.AdamOptimizer(0.1)
    pairs = [*optimizer.compute_gradients(loss, [w]), (np.float32([1, 2]), other)]
    return optimizer.apply_gradients(pairs, tf.train.get_global_step())


FORMS = [
    with_an_array,
    clipped_by_norm,
    towers,
    gradient_penalty,
    in_two_parts,
    wrapped,
    by_keywords,
    of_a_function,
    through_a_spectrum,
]


@pytest.mark.by_day("clipped_by_norm", "gradient_penalty", "by_keywords", "of_a_function", "towers")
@pytest.mark.parametrize("build", FORMS, ids=lambda build: build.__name__)
def test_forms_of_scripts_train_as_in_plain_tensorflow(build):
    against_plain(build)


def clipped_by_value(x):
    """The gradient is the mean of x: 1e35 is finite, 1e35 * 2**15 is not, and after clipping it is 0.1."""
    w = tf.get_variable("w", initializer=np.ones([4, 2], np.float32), use_resource=True)
    optimizer = tf.train.GradientDescentOptimizer(0.1)
    pairs = optimizer.compute_gradients(tf.reduce_mean(tf.matmul(x, w)))
    pairs = [(tf.clip_by_value(gradient, -0.1, 0.1), variable) for gradient, variable in pairs]
    return optimizer.apply_gradients(pairs, tf.train.get_global_step())


def test_an_overflow_that_clipping_hides_is_seen():
    plain = Trained(clipped_by_value, feeds=[GOOD] * 2)
    automatic.install()
    scaled = Trained(clipped_by_value, feeds=[GOOD, GOOD + np.float32(1e35), GOOD])
    same(scaled, plain)
    assert scaled.counts == [[3, 1, 0]]


def test_losses_of_several_shapes_add_up():
    plain = Trained(of_several_losses, feeds=[GOOD] * 3)
    automatic.install()
    scaled = Trained(of_several_losses, feeds=[GOOD] * 3)
    same(scaled, plain)
    assert scaled.counts == [[3, 0, 0]]


def test_a_global_step_by_hand_moves_at_a_skipped_step():
    plain = Trained(with_a_step_by_hand, feeds=[GOOD] * 4)
    automatic.install()
    scaled = Trained(with_a_step_by_hand)
    np.testing.assert_array_equal(scaled.values["w:0"], plain.values["w:0"])
    assert (plain.step, scaled.step, scaled.counts) == (4, 5, [[5, 1, 0]])


def test_an_average_of_the_weights_that_follows_the_step_runs_at_a_skipped_one():
    automatic.install()
    scaled = Trained(with_a_moving_average)
    assert scaled.counts == [[5, 1, 0]]
    assert all(np.isfinite(value).all() for value in scaled.values.values())


def adversaries(x):
    """Two optimizers over losses that share a network; each step is a run of its own."""
    with tf.variable_scope("G"):
        image = tf.tanh(tf.matmul(x, net(x, size=4)[0]))
    with tf.variable_scope("D"):
        w, on_made = net(image)
        on_given = tf.reduce_mean(tf.square(tf.matmul(x, w)))
    own = {scope: tf.trainable_variables(scope) for scope in "GD"}
    (slope,) = tf.gradients(on_made, [image])
    penalty = tf.reduce_mean(tf.square(slope))
    step_d = tf.train.AdamOptimizer(0.1).minimize(on_given - on_made + penalty, var_list=own["D"])
    step_g = tf.train.AdamOptimizer(0.1).minimize(on_made, tf.train.get_global_step(), var_list=own["G"])
    return [step_d, step_g]


@pytest.mark.parametrize("together", [False, True])
def test_two_optimizers_have_a_scale_each(together):
    build = (lambda x: [adversaries(x)]) if together else adversaries
    if not together:
        scaled = against_plain(build, counts=[(5, 1, 0)] * 2)
    else:  # both in one run: which of the two reads the other's weights first is nobody's promise
        automatic.install()
        scaled = Trained(build)
        assert scaled.counts == [[5, 1, 0]] * 2
        assert all(np.isfinite(value).all() for value in scaled.values.values())
    assert scaled.scales == [START / 2] * 2


def split(x):
    """The gradients of one call go to two optimizers, which share its scale."""
    with tf.variable_scope("one"):
        w, _ = net(x)
    hidden = tf.matmul(x, w)
    v = tf.get_variable("v", initializer=np.ones([2, 1], np.float32), use_resource=True)
    gradients = tf.gradients(tf.reduce_mean(tf.tanh(tf.matmul(hidden, v))), [w, v])
    first = tf.train.AdamOptimizer(0.1).apply_gradients([(gradients[0], w)], tf.train.get_global_step())
    second = tf.train.GradientDescentOptimizer(0.1).apply_gradients([(gradients[1], v)])
    return tf.group(first, second)


def test_optimizers_that_share_gradients_share_a_scale():
    plain = Trained(split, feeds=[GOOD] * 4)
    automatic.install()
    scaled = Trained(split)
    same(scaled, plain)
    assert len(scaled.scales) == 1
    assert scaled.scales[0] in (START / 2, START / 4)


def accumulating(x):
    """Gradients are added up in variables in runs of their own; the update takes no feed."""
    w, loss = net(x)
    sums = tf.Variable(tf.zeros_like(w), trainable=False, name="sums")
    (gradient,) = tf.gradients(loss, [w])
    gather = tf.assign_add(sums, gradient)
    update = tf.train.AdamOptimizer(0.1).apply_gradients([(sums / 2.0, w)], tf.train.get_global_step())
    return gather, update, sums.assign(tf.zeros_like(sums))


def test_gradients_accumulated_by_hand():
    def trained(windows):
        with tf.Graph().as_default() as graph, tf.Session() as session:
            step = tf.train.get_or_create_global_step()
            x = tf.placeholder(tf.float32, [None, 4], "x")
            gather, update, clear = accumulating(x)
            session.run(tf.global_variables_initializer())
            for window in windows:
                for feed in window:
                    session.run(gather, {x: feed})
                session.run(update)
                session.run(clear)
            values = session.run([*tf.global_variables(), step])
            return values, session.run(graph.get_collection("npu_shim/skipped_steps"))

    plain, _ = trained([[GOOD, GOOD]] * 3)
    automatic.install()
    scaled, skipped = trained([[GOOD, GOOD], [GOOD, BAD], [GOOD, GOOD], [GOOD, GOOD]])
    sessions.assert_close(scaled, plain)
    assert skipped == [1]


def test_the_update_of_a_branch_is_scaled_there():
    def in_a_branch(x):
        _, loss = net(x)
        pairs = tf.train.AdamOptimizer(0.1).compute_gradients(loss)
        optimizer = tf.train.AdamOptimizer(0.1)
        step = tf.train.get_global_step()
        return tf.cond(tf.shape(x)[0] > 0, lambda: tf.group(optimizer.apply_gradients(pairs, step)), lambda: tf.no_op())

    automatic.install()
    scaled = Trained(in_a_branch)
    assert scaled.counts == [[5, 1, 0]]
    assert scaled.step == 4


def test_training_in_a_loop():
    def in_a_loop(x):
        w, _ = net(x)

        def body(i):
            loss = tf.reduce_mean(tf.square(tf.tanh(tf.matmul(x, w)) - 1.0))
            train = tf.train.GradientDescentOptimizer(0.1).minimize(loss, tf.train.get_global_step())
            with tf.control_dependencies([train]):
                return i + 1

        return tf.while_loop(lambda i: i < 3, body, [0], parallel_iterations=1)

    scaled = against_plain(in_a_loop, counts=[(15, 3, 0)])
    assert scaled.scales == [START / 8]


def test_sync_replicas():
    def synchronized(x):
        _, loss = net(x, resource=False)
        base = tf.train.GradientDescentOptimizer(0.1)
        optimizer = tf.train.SyncReplicasOptimizer(base, replicas_to_aggregate=1, total_num_replicas=1)
        train = optimizer.minimize(loss, tf.train.get_global_step())
        return train, optimizer.make_session_run_hook(is_chief=True, num_tokens=0)

    def trained(feeds):
        with tf.Graph().as_default() as graph:
            step = tf.train.get_or_create_global_step()
            x = tf.placeholder(tf.float32, [None, 4], "x")
            train, hook = synchronized(x)
            skipped = graph.get_collection("npu_shim/skipped_steps")
            with tf.train.MonitoredTrainingSession(hooks=[hook], stop_grace_period_secs=1) as session:
                for feed in feeds:
                    session.run(train, {x: feed})
                return session.run([tf.trainable_variables(), step]), session.run(skipped)

    (plain, step), _ = trained([GOOD] * 3)
    automatic.install()
    (scaled, scaled_step), skipped = trained([GOOD] * 3)
    np.testing.assert_array_equal(scaled[0], plain[0])
    assert (step, skipped) == (scaled_step, [0])


# scripts that scale by themselves


class LossScaleOptimizer(tf.train.Optimizer):
    """Some script's own."""

    def __init__(self, optimizer):
        super().__init__(False, "mine")
        self.optimizer = optimizer

    def compute_gradients(self, loss, **options):
        pairs = self.optimizer.compute_gradients(loss * self.scale(), **options)
        return [(gradient / self.scale(), variable) for gradient, variable in pairs]

    def scale(self):
        return 128.0

    def apply_gradients(self, *arguments, **options):
        return self.optimizer.apply_gradients(*arguments, **options)


def sgd():
    return tf.train.GradientDescentOptimizer(0.1)


def by_ours(loss, w):
    manager = loss_scale.ExponentialUpdateLossScaleManager(2**10, 1000)
    return loss_scale.NPULossScaleOptimizer(sgd(), manager).minimize(loss)


def by_ours_accumulated(loss, w):
    manager = loss_scale.ExponentialUpdateLossScaleManager(2**10, 1000)
    return loss_scale.AccumulatingOptimizer(loss_scale.NPULossScaleOptimizer(sgd(), manager), 2).minimize(loss)


def by_a_script_s_class(loss, w):
    return LossScaleOptimizer(sgd()).minimize(loss)


def within_a_wrapper(loss, w):
    return Wrapper(LossScaleOptimizer(sgd())).minimize(loss)


def by_tensorflow_s(loss, w):
    experimental = getattr(tf.train.experimental, "MixedPrecisionLossScaleOptimizer", None)
    if experimental is None:
        experimental = tf.mixed_precision.MixedPrecisionLossScaleOptimizer
    return experimental(sgd(), "dynamic").minimize(loss)


def by_hand(loss, w):
    gradients = [gradient / 128.0 for gradient in tf.gradients(loss * 128.0, [w])]
    return sgd().apply_gradients(zip(gradients, [w]))


def by_hand_and_reciprocal(loss, w):
    gradients = tf.gradients(tf.reduce_mean(tf.cast(loss, tf.float32) * 1000.0), [w])
    gradients, _ = tf.clip_by_global_norm([gradient * (1.0 / 1000.0) for gradient in gradients], 5.0)
    return sgd().apply_gradients(zip(gradients, [w]))


def by_a_variable(loss, w):
    scale = tf.get_variable("scale", initializer=8.0, trainable=False, use_resource=True)
    pairs = sgd().compute_gradients(scale * loss)
    return sgd().apply_gradients([(gradient * tf.reciprocal(scale), variable) for gradient, variable in pairs])


def by_grad_ys(loss, w):
    scale = tf.placeholder_with_default(16.0, [])
    gradients = [gradient / scale for gradient in tf.gradients(loss, [w], grad_ys=[scale])]
    return sgd().apply_gradients(zip(gradients, [w]))


def by_hand_for_two_towers(loss, w):
    towers = [tf.gradients(loss * 16.0 * 8.0, [w])[0] for _ in range(2)]
    return sgd().apply_gradients([(tf.add_n(towers) / (2 * 128.0), w)])


def by_twice_a_variable(loss, w):
    scale = tf.get_variable("scale", initializer=[8.0], trainable=False, use_resource=True)
    pairs = sgd().compute_gradients(tf.reduce_sum(loss * scale))
    return sgd().apply_gradients([(tf.div_no_nan(2.0 * gradient, 2.0 * scale), v) for gradient, v in pairs])


OWN = [by_ours, by_ours_accumulated, by_a_script_s_class, within_a_wrapper, by_tensorflow_s]
OWN += [by_hand, by_hand_and_reciprocal, by_a_variable, by_grad_ys, by_hand_for_two_towers, by_twice_a_variable]


@pytest.mark.parametrize("train", OWN, ids=lambda train: train.__name__)
def test_a_script_that_scales_by_itself_is_left_alone(train, caplog):
    def build(x):
        w, loss = net(x)
        return train(loss, w)

    plain = Trained(build, feeds=[GOOD] * 4)
    automatic.install()
    with caplog.at_level(logging.WARNING, "npu_shim"):
        scaled = Trained(build, feeds=[GOOD] * 4)
    same(scaled, plain)
    assert not scaled.counts
    told = [record.getMessage() for record in caplog.records if "left alone" in record.getMessage()]
    assert len(told) == 1, told


def clipped(norm):
    return lambda gradients, _: tf.clip_by_global_norm(gradients, norm)[0]


@pytest.mark.parametrize(("factor", "change"), [
    (0.5, lambda gradients, _: [gradient / 4.0 for gradient in gradients]),
    (0.5, clipped(1.0)),  # a norm is the root of 2.0 * a sum of halves
    (8.0, lambda gradients, _: [gradient / 16.0 for gradient in gradients]),  # a weight, and a size
    (0.1, lambda gradients, _: [gradient * 10.0 for gradient in gradients]),  # a new layer learns faster
    (5.0, clipped(5.0)),  # multiplies by 5.0 * min(1 / norm, 1 / 5.0)
    (10.0, lambda gradients, weights: [gradient + 0.1 * weight for gradient, weight in zip(gradients, weights)]),
])  # fmt: skip
def test_factors_that_are_no_loss_scale_do_not_hide_the_script(factor, change, caplog):
    def build(x):
        _, loss = net(x)
        gradients, variables = zip(*sgd().compute_gradients(loss * factor))
        return sgd().apply_gradients(zip(change(gradients, variables), variables))

    automatic.install()
    assert Trained(build).counts == [[5, 1, 0]]
    assert not [record for record in caplog.records if record.name == "npu_shim"]


def test_gradients_applied_in_two_calls_are_skipped_together():
    automatic.install(8)
    with tf.Graph().as_default():
        w, b = (tf.get_variable(name, initializer=1.0) for name in "wb")
        x, counter = tf.placeholder(tf.float32, []), tf.train.get_or_create_global_step()
        (of_w, of_b) = sgd().compute_gradients(w * x + b)
        train_op = tf.group(sgd().apply_gradients([of_w]), sgd().apply_gradients([of_b], counter))
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            session.run(train_op, {x: np.inf})
            assert session.run([w, b, counter]) == [1.0, 1.0, 0]


@pytest.mark.parametrize("gradient", [tf.ones_like, lambda w: np.ones(w.shape.as_list(), np.float32)])
def test_gradients_that_nobody_made_are_told(caplog, gradient):
    def build(x):
        w, _ = net(x)
        return sgd().apply_gradients([(gradient(w), w)])

    automatic.install()
    with caplog.at_level(logging.WARNING, "npu_shim"):
        assert not Trained(build).counts
    (told,) = [record.getMessage() for record in caplog.records if record.name == "npu_shim"]
    assert "GradientDescentOptimizer" in told
    assert "bfloat16" in told


@pytest.mark.parametrize("bad", [complex(1, np.inf), complex(np.nan, 1), complex(np.inf, -1)])
def test_both_parts_of_complex_gradients_are_looked_at(bad):
    with tf.Graph().as_default(), tf.Session() as session:
        given = tf.placeholder(tf.complex64, [2])
        finite = overflow.all_finite([given, tf.IndexedSlices(tf.constant([1]), tf.constant([0]))])
        assert session.run(finite, {given: [1, 1 + 2e38j]})
        assert not session.run(finite, {given: [1, bad]})
