"""Random programs with loss scaling and gradient accumulation; the oracle applies the mean of a window by hand.

    v0 = tf.Variable(integers(3), name='net0/v', use_resource=True)
    b0 = moving('net0/b', 'bad0:0', True)
    o0 = wrapped(tf.train.AdamOptimizer(1.0), scale=8.0, every=2, protect=True)
    u0 = trained(o0, lambda: rows(v0), [v0], 'bad0:0', [b0])
    ---
    s.steps(['u0'], 5, [])
    s.steps(['u0'], 6, ['u0'])      its gradients are not finite

What a script with the wrapped optimizers does, plain TensorFlow does in parts: it computes the gradients of a run's
steps; runs the updates that they wait for, those of other steps too, and puts back what a step that overflows
protects; at the end of a window in which all gradients were finite it applies their mean, and runs what waits for that.
"""

import functools
import itertools
import random
from typing import Any, Dict, List, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from fuzz import drawing, playing, words
from npu_shim import loss_scale

OPTIMIZERS = (
    "tf.train.GradientDescentOptimizer(1.0)", "tf.train.MomentumOptimizer(1.0, 0.5)", "tf.train.AdamOptimizer(0.5)",
    "tf.train.RMSPropOptimizer(0.5, momentum=0.5)", "tf.train.FtrlOptimizer(0.5)", "tf.train.AdagradOptimizer(0.5)",
)  # fmt: skip


# words of both sides


def dense(variable, factor=1.0):
    """A loss whose gradient is the sums of x's rows, times a factor."""
    x = tf.get_default_graph().get_tensor_by_name("x:0")
    whole = tf.reshape(variable.read_value(), [4, 4])
    return tf.reduce_sum(tf.cast(tf.matmul(tf.cast(x, whole.dtype), whole), tf.float32) * factor)


def rows(variable):
    """A loss of the rows that `ids` chooses; its gradient is sparse."""
    ids = tf.get_default_graph().get_tensor_by_name("ids:0")
    x = tf.get_default_graph().get_tensor_by_name("x:0")
    return tf.reduce_sum(tf.cast(tf.gather(variable, ids), tf.float32) * x[:2])


def ids_and_bad():
    """The further placeholders: rows, and a factor of each step's loss that makes it infinite."""
    tf.placeholder(tf.int32, [2], "ids")
    for name in ("bad0", "bad1"):
        tf.placeholder_with_default(1.0, [], name)


def moving(name, bad, resource):
    """An average over steps, as batch normalization keeps it: an op of UPDATE_OPS."""
    graph = tf.get_default_graph()
    variable = tf.Variable(0.0, trainable=False, name=name, use_resource=resource)
    seen = tf.reduce_sum(graph.get_tensor_by_name("x:0")) * graph.get_tensor_by_name(bad)
    return _update(variable.assign(variable.read_value() * 0.5 + seen * 0.5))


def moving_rows(name, bad, resource):
    """Sums of the rows that `ids` chooses: an op of UPDATE_OPS that writes a part of its variable."""
    graph = tf.get_default_graph()
    variable = tf.Variable(tf.zeros([4, 4]), trainable=False, name=name, use_resource=resource)
    seen = graph.get_tensor_by_name("x:0")[:2] * graph.get_tensor_by_name(bad)
    return _update(tf.scatter_add(variable, graph.get_tensor_by_name("ids:0"), seen))


def _update(written):
    tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, written.op)
    return written.op


def refused(build):
    """The name of the error that `build()` ends with."""
    try:
        build()
    except Exception as error:
        return tf.constant(type(error).__name__)
    return tf.constant("none")


# the words of the side that is tried


class Scaled:
    """The words of a script that uses npu_shim's optimizers."""

    @staticmethod
    def wrapped(optimizer, scale=None, every=None, protect=False, moves=False):
        if scale:
            manager = loss_scale.FixedLossScaleManager(scale)
            if moves:
                manager = loss_scale.ExponentialUpdateLossScaleManager(scale, 3, 1, 2, 0.5)
            optimizer = loss_scale.LossScaleOptimizer(optimizer, manager, protect_update_ops=protect)
        return loss_scale.AccumulatingOptimizer(optimizer, every) if every else optimizer

    @staticmethod
    def trained(optimizer, loss, variables, bad, updates, after=None):
        factor, step = tf.get_default_graph().get_tensor_by_name(bad), words.counter()
        with tf.control_dependencies(updates):
            op = optimizer.minimize(loss() * factor, step, variables)
        if after is None:
            return op
        with tf.control_dependencies([op]):
            return tf.group(op, optimizer.when_finite(after))

    @staticmethod
    def without_gradients(optimizer, variable):
        return optimizer.apply_gradients([(None, variable)])


class ScaledSide(playing.Side):
    """A session of a script that uses npu_shim's optimizers."""

    def steps(self, labels, number, bad):
        fed = _feeds(labels, number, bad)
        self.session.run([self._built.labels[label] for label in labels], fed)
        return []


def _feeds(labels, number, bad):
    ids = np.random.RandomState(number).randint(0, 4, [2]).astype(np.int32)
    fed = {"x:0": words.numbers(number), "ids:0": ids}
    fed.update(("bad%s:0" % label[1:], np.float32(np.inf)) for label in labels if label in bad)
    return fed


# the oracle's words


class Wrapped(NamedTuple):
    """An optimizer and what npu_shim's would do around it."""

    optimizer: Any
    every: int
    checks: bool
    protects: bool


class Trained(NamedTuple):
    """A step in parts: its scope, gradients (tensors or IndexedSlices), what feeds their means, and what runs when."""

    wrapped: Wrapped
    name: str
    gradients: List[Any]
    means: List[Any]
    apply: Any
    updates: List[Any]
    after: Any

    def puts_back(self, update, value):
        """Whether a step that overflows puts back what an update wrote: its own, or what is not finite."""
        return update in self.updates and (_written(update).startswith(self.name + "/") or not _is_finite(value))


class Oracle:
    """The words of the same script in plain TensorFlow."""

    @staticmethod
    def wrapped(optimizer, scale=None, every=None, protect=False, moves=False):
        return Wrapped(optimizer, every or 1, bool(scale), protect)

    @staticmethod
    def trained(wrapped, loss, variables, bad, updates, after=None):
        factor, step = tf.get_default_graph().get_tensor_by_name(bad), words.counter()
        pairs = wrapped.optimizer.compute_gradients(loss() * factor, variables)
        means = [_fed(gradient) for gradient, _ in pairs]
        apply = wrapped.optimizer.apply_gradients([(m, v) for m, (_, v) in zip(means, pairs)], step)
        after_op = tf.no_op() if after is None else tf.group(after())
        scope = variables[0].op.name.partition("/")[0]
        return Trained(wrapped, scope, [g for g, _ in pairs], means, apply, updates, after_op)

    @staticmethod
    def without_gradients(wrapped, variable):
        return wrapped.optimizer.apply_gradients([(None, variable)])


def _fed(gradient):
    """A gradient that is fed."""
    if isinstance(gradient, tf.IndexedSlices):
        values, indices = gradient.values, gradient.indices
        return tf.IndexedSlices(
            tf.placeholder(values.dtype, [None, *values.shape[1:]]), tf.placeholder(indices.dtype, [None]),
            gradient.dense_shape,
        )  # fmt: skip
    return tf.placeholder(gradient.dtype, gradient.shape)


class OracleSide(playing.Side):
    """A session of the same script in plain TensorFlow."""

    def __init__(self, *arguments, **more):
        super().__init__(*arguments, **more)
        self._windows: Dict[str, List[Any]] = {}  # of a step: the gradients since its last window

    def steps(self, labels, number, bad):
        fed, steps = _feeds(labels, number, bad), [self._built.labels[label] for label in labels]
        windows = [self._gathered(step, fed) for step in steps]
        protecting = [(step, window) for step, window in zip(steps, windows) if step.wrapped.protects]
        overflowed = [step for step, window in protecting if not _may_be_applied(step, window[-1:])]
        self._update(list(dict.fromkeys(update for step in steps for update in step.updates)), overflowed, fed)
        for step, window in zip(steps, windows):
            if len(window) == step.wrapped.every:
                self._apply(step, window, _may_be_applied(step, window))
        return []

    def _gathered(self, step, fed):
        """The gradients of a window so far, those of this step included."""
        window = self._windows.setdefault(step.name, [])
        window.append(self.session.run(step.gradients, fed))
        return window

    def _update(self, updates, overflowed, fed):
        """Runs updates, and puts back what the steps that overflow protect."""
        before = self.look()
        self.session.run(updates, fed)
        after = self.look()
        for update in updates:
            name = _written(update)
            if any(step.puts_back(update, after[name]) for step in overflowed):
                initializer = self._built.graph.get_operation_by_name(name + "/Assign")
                self.session.run(initializer, {initializer.inputs[1]: before[name]})

    def _apply(self, step, window, finite):
        if finite:
            means = {}
            for number, mean in enumerate(step.means):
                means.update(_mean([taken[number] for taken in window], mean))
            self.session.run(step.apply, means)
            self.session.run(step.after)
        del window[:]


def _written(update):
    """The name of the variable that an update writes."""
    return update.inputs[0].op.name


def _may_be_applied(step, window):
    """Whether all gradients are finite, or nobody looks."""
    return not step.wrapped.checks or all(_is_finite(value) for taken in window for value in taken)


def _is_finite(gradient):
    return bool(np.isfinite(np.asarray(getattr(gradient, "values", gradient), np.float32)).all())


def _mean(gradients, fed):
    """Feeds of the mean of gradients: computed in float32, rounded once."""
    count = np.float32(len(gradients))
    if isinstance(fed, tf.IndexedSlices):
        values = np.concatenate([gradient.values for gradient in gradients])
        mean = (values.astype(np.float32) / count).astype(values.dtype)
        return {fed.values: mean, fed.indices: np.concatenate([slices.indices for slices in gradients])}
    total = sum(gradient.astype(np.float32) for gradient in gradients)
    return {fed: (total / count).astype(gradients[0].dtype)}


# drawing


def draw(seed):
    """Returns the drawing.Program of a seed."""
    return _Drawing(random.Random(seed), seed).program()


class _Kind(NamedTuple):
    """A kind of trained variable: its initial value, its loss, and how many of OPTIMIZERS can train it exactly."""

    start: str
    loss: str
    optimizers: int = len(OPTIMIZERS)
    more: str = ""


KINDS = (
    _Kind("integers(%d)", "dense({v})"),
    _Kind("integers(%d)", "rows({v})"),
    _Kind("integers(%d)", "dense({v}) + rows({v})"),
    _Kind("tf.cast(integers(%d), tf.float16)", "dense({v}, 511.0)", 2),
    _Kind("unknown(%d)", "dense({v})", 1, ", validate_shape=False"),  # TensorFlow makes no slots for it
)
SCALES = ("", "scale=8.0", "scale=8.0, protect=True", "scale=8.0, protect=True", "scale=8.0, moves=True")
WINDOWS = ("", "every=1", "every=2", "every=4")


class _Drawing:
    def __init__(self, chance, seed):
        self._random, self._seed = chance, seed
        self._seeds = iter(range(seed % 89 + 1, 10**6))

    def _one(self, *ways):
        return self._random.choice(ways)

    def _likely(self, chance):
        return self._random.random() < chance

    def program(self):
        """Returns the Program."""
        steps = ["u%d" % k for k in range(self._one(1, 2))]
        averages = {"b%d" % k: self._moving(k) for k in range(len(steps)) if self._likely(0.7)}
        # a step may wait for all of UPDATE_OPS, as those of a GAN do; its networks are there before its optimizers
        waits = {k: [b for b in averages if b == "b%d" % k or self._likely(0.5)] for k in range(len(steps))}
        networks, training = zip(*(self._step(k, updates) for k, updates in waits.items()))
        lines = ["x, p, n = inputs()", "ids_and_bad()", *networks, *averages.values(), *itertools.chain(*training)]
        runs = [line for _ in range(self._random.randint(5, 9)) for line in self._run(steps, lines)]
        if self._likely(0.15):
            lines.append("e0 = refused(lambda: without_gradients(o0, v0))")
            runs.append("s.run('e0', 1)")
        lines.append("full = tf.train.Saver(everything())")
        return drawing.Program(self._seed, tuple(lines), (*runs, "s.save('full', 9)", "elsewhere('full', 9)"))

    def _run(self, steps, lines):
        """The lines of a run of all steps, or of one, some of them with gradients that are not finite."""
        labels = steps if self._likely(0.6) else [self._one(*steps)]
        checked = any("scale" in line for line in lines)
        bad = [label for label in labels if checked and self._likely(0.25)]
        return "s.steps(%r, %d, %r)" % (labels, next(self._seeds), bad), "s.look()"

    def _moving(self, k):
        """The line of an average next to a step's variable."""
        kind = self._one("moving", "moving", "moving_rows")
        return "b%d = %s('net%d/b', 'bad%d:0', %s)" % (k, kind, k, k, self._one(True, False))

    def _step(self, k, updates):
        """The line of a step's variable, and those of its optimizer; `updates` are the names of what it waits for."""
        kind, resource = self._one(*KINDS), self._one(True, False)
        scale = self._one(*(SCALES[:-1] if "float16" in kind.start else SCALES))  # gradients overflow from 32 on
        network = "v{k} = tf.Variable({start}, name='net{k}/v', use_resource={resource}{more})"
        after = ""
        if scale and resource and self._likely(0.7):  # an average of a reference variable may begin with anything
            after = ", lambda: tf.train.ExponentialMovingAverage(0.5).apply([v%d])" % k
        window = self._one(*WINDOWS) if scale else self._one(*WINDOWS[1:])
        given = [self._one(*OPTIMIZERS[: kind.optimizers]), *filter(None, (scale, window))]
        lines = [
            "o{k} = wrapped({given})",
            "u{k} = trained(o{k}, lambda: {loss}, [v{k}], 'bad{k}:0', [{updates}]{after})",
        ]
        said = {
            "k": k, "start": kind.start % next(self._seeds), "resource": resource, "more": kind.more, "after": after,
            "given": ", ".join(given), "loss": kind.loss.format(v="v%d" % k),
            "updates": ", ".join(updates),
        }  # fmt: skip
        return network.format(**said), [line.format(**said) for line in lines]


# playing

SHARED = {name: value for name, value in globals().items() if name in (
    "dense", "rows", "ids_and_bad", "moving", "moving_rows", "refused")}  # fmt: skip


def _words(of):
    return {**SHARED, **{name: getattr(of, name) for name in ("wrapped", "trained", "without_gradients")}}


def plain(program, folder):
    """Returns (Built, trace) of a program in plain TensorFlow."""
    built = playing.build(program, **_words(Oracle))
    return built, playing.play(program, built, folder, OracleSide)


def scaled(program, expected, folder):
    """With npu_shim's optimizers."""
    opened = functools.partial(ScaledSide, config=tf.ConfigProto())
    return playing.play(program, playing.build(program, **_words(Scaled)), folder, opened, expected.built)
