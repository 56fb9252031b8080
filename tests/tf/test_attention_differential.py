"""Attention with biases and masks of all kinds: what is matched computes what TensorFlow's own nodes do in that plan.

A graph has all cases of a dtype; its step runs twice, with its attention taken and as it is. Values and gradients are
compared, those of rows that are masked as a whole too.
"""

import itertools
import random
from dataclasses import replace
from typing import NamedTuple
from unittest import mock

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

from npu_shim.engine.step_programs import StepPrograms
from npu_shim.xla import step_function
from npu_shim.xla.sources import Source

pytestmark = [*sessions.COMPILED, pytest.mark.usefixtures("control_flow_of_version_1")]
BATCH, HEADS, LENGTH, SIZE = 2, 2, 8, 4
WHOLE = (BATCH, HEADS, LENGTH, SIZE)
INFINITY = float("inf")
LOWEST = -(2.0**32) + 1  # what many scripts take; float16 has no such number
# precision mode, and how far from the plan's own nodes a result may be, of the largest of its elements
MODES = {
    "float32": ({"precision_mode": "must_keep_origin_dtype", "profile": "gpu"}, 1e-5),
    "float16": ({"precision_mode": "allow_mix_precision"}, 8 * 2.0**-11),
    "bfloat16": ({"precision_mode": "allow_mix_precision_bf16"}, 8 * 2.0**-8),
}


def ones(mask):
    return tf.cast(mask, tf.float32)


def causal():
    return tf.range(LENGTH)[:, None] >= tf.range(LENGTH)


def shown(mask):
    """Integers, 1 where a mask is True: as BERT has its own, before they are cast."""
    return tf.cast(mask, tf.int32)


def as_kyubyong(scores, mask, low):
    return tf.where(tf.tile(mask, [1, HEADS, 1, 1]), scores, tf.ones_like(scores) * low)


# what is added to scores, and where a factor stands: (scores, bias, factor) -> scores
BIASES = {
    "s": lambda s, b, f: s * f,
    "s + b": lambda s, b, f: s * f + b,
    "s - b": lambda s, b, f: s * f - b,
    "b - s": lambda s, b, f: b - s * f,
    "-(s + b)": lambda s, b, f: -(s * f + b),
    "(s + b) f": lambda s, b, f: (s + b) * f,
    "(s - b) / f": lambda s, b, f: (s - b) / (2 * f),
}
# how scores are masked where `mask` is False: (scores, mask, number) -> scores
MASKS = {
    "none": lambda s, m, low: s,
    "where": lambda s, m, low: tf.where_v2(m, s, tf.constant(low, tf.float32)),
    "where not": lambda s, m, low: tf.where_v2(tf.logical_not(m), tf.fill(tf.shape(s), low), s),
    "where of ones": as_kyubyong,
    "where, then a factor": lambda s, m, low: tf.where_v2(m, s, tf.constant(low, tf.float32)) * 0.7,
    "added": lambda s, m, low: s + (1.0 - ones(m)) * low,
    "subtracted": lambda s, m, low: s - (1.0 - ones(m)) * -low,
    "added, then a factor": lambda s, m, low: (s + (1.0 - ones(m)) * low) * 0.7,
    "multiplied": lambda s, m, low: s * ones(m) + low * (1.0 - ones(m)),
    "added integers": lambda s, m, low: s + tf.cast((1 - shown(m)) * int(low), tf.float32),
    "times integer ones": lambda s, m, low: (
        s + (1.0 - ones(tf.ones([BATCH, 1, LENGTH, 1], tf.int32) * shown(m[:, :, 2:3]))) * low
    ),
    "multiplied alone": lambda s, m, low: s * ones(m),
    "causal": lambda s, m, low: tf.where_v2(causal(), s, tf.constant(low, tf.float32)),
    "causal, then padding": lambda s, m, low: tf.where_v2(m, tf.where_v2(causal(), s, low), low / 2),
    "causal, then added": lambda s, m, low: tf.where_v2(causal(), s, low) + (1.0 - ones(m)) * low,
}
# masks that are biases, too
ADDS = {
    "added", "subtracted", "added, then a factor", "added integers", "times integer ones", "causal, then added",
}  # fmt: skip


def held(low, dtype):
    """The number of a mask as a dtype holds it, but for its rounding."""
    return -INFINITY if dtype == "float16" and low < -65504 else low


class Case(NamedTuple):
    """A way to write attention.

    Attributes:
        bias, mask: keys of BIASES and MASKS.
        low: the number of the mask.
        is_whole: whether some rows are masked as a whole.
        factor: of BIASES.
        shape: of the bias.
        cast: a dtype of 16 bits to which a tensor is cast, and back; "" for none.
        place: that tensor: what comes of the "product", "bias", "mask" or "softmax".
    """

    bias: str
    mask: str
    low: float = -1e9
    is_whole: bool = False
    factor: float = 0.5
    shape: tuple = (1, HEADS, LENGTH, LENGTH)
    cast: str = ""
    place: str = ""

    def is_taken(self, dtype):
        """The kernel gives the gradient of a sole bias, and rounds to no 16 bits but those of its products."""
        if self.cast not in ("", dtype):
            return False
        has_numbers = self.mask == "causal, then padding" and held(self.low, dtype) != held(self.low / 2, dtype)
        return self.bias == "s" or not (has_numbers or self.mask in ADDS)

    def build(self, masks, drawn):
        """Returns the names of what is computed, and the tensors: out, and gradients."""
        q, k, v = (tf.get_variable(letter, initializer=drawn.randn(*WHOLE).astype("f") * 0.7) for letter in "qkv")
        given, bias = {"q": q, "k": k, "v": v}, None
        if self.bias != "s":
            bias = given["b"] = tf.get_variable("b", initializer=drawn.randn(*self.shape).astype("f"))
        scores = self._rounded("product", tf.matmul(q, k, transpose_b=True))
        scores = self._rounded("bias", BIASES[self.bias](scores, bias, self.factor))
        scores = self._rounded("mask", MASKS[self.mask](scores, masks[self.is_whole], self.low))
        out = tf.matmul(self._rounded("softmax", tf.nn.softmax(scores, name="softmax")), v)
        loss = tf.reduce_sum(out * tf.constant(drawn.randn(*WHOLE).astype("f")))
        return ["out", *("d" + name for name in given)], [out, *tf.gradients(loss, list(given.values()))]

    def _rounded(self, place, tensor):
        """A tensor, behind a Cast and back if one stands there."""
        return tf.cast(tf.cast(tensor, self.cast), tf.float32) if place == self.place else tensor


class Dropout(NamedTuple):
    """Attention with a mask of dropout that keeps a share, times a number; draws differ, what is kept does not."""

    keep: float
    times: float

    def is_taken(self, dtype):
        """What is kept is scaled, as far as the dtype of constants can say."""
        return abs(self.keep * self.times - 1) < {"bfloat16": 1 / 64}.get(dtype, 1e-3)

    def build(self, masks, drawn):
        """Equal probabilities, and values that are unit vectors: out shows what a kept one is multiplied by."""
        q = tf.get_variable("q", initializer=np.zeros(WHOLE, "f"))
        k = tf.get_variable("k", initializer=drawn.randn(*WHOLE).astype("f"))
        v = tf.get_variable("v", initializer=np.tile(np.eye(LENGTH, dtype="f"), [BATCH, HEADS, 1, 1]))
        weights = tf.nn.softmax(tf.matmul(q, k, transpose_b=True), name="softmax")
        kept = tf.floor(self.keep + tf.random_uniform([BATCH, HEADS, LENGTH, LENGTH], seed=3))
        return ["largest"], [tf.reduce_max(tf.matmul(weights * kept * self.times, v)) * LENGTH]


class Turned(NamedTuple):
    """Scores whose dimensions stand in another order, with a trained bias."""

    scores: str
    shape: tuple

    def is_taken(self, dtype):
        return True

    def build(self, masks, drawn):
        """Returns the names of what is computed, and the tensors: out, and gradients."""
        shape = [BATCH, LENGTH, HEADS, SIZE]
        q, k, v = (tf.get_variable(letter, initializer=drawn.randn(*shape).astype("f") * 0.7) for letter in "qkv")
        bias = tf.get_variable("b", initializer=drawn.randn(*self.shape).astype("f"))
        scores = tf.einsum("bshe,bthe->" + self.scores, q, k) * 0.5 + bias
        out = tf.einsum(self.scores + ",bthe->bshe", tf.nn.softmax(scores, name="softmax"), v)
        loss = tf.reduce_sum(out * tf.constant(drawn.randn(*shape).astype("f")))
        return ["out", "dq", "dk", "dv", "db"], [out, *tf.gradients(loss, [q, k, v, bias])]


BY_DAY = [
    Turned("bsht", (LENGTH, HEADS, LENGTH)),
    Turned("sbht", (LENGTH, 1, HEADS, LENGTH)),
    Turned("bsht", (HEADS, LENGTH)),
    *(Case(bias, "none") for bias in BIASES if bias != "s"),
    Case("(s + b) f", "none", factor=1 / 3, shape=(1, 1, 1, LENGTH)),
    Case("(s + b) f", "where", is_whole=True),
    Case("s - b", "multiplied alone", is_whole=True),
    *(Case("s", mask, low, is_whole=True) for mask, low in itertools.product(MASKS, (-1e4, -1e9)) if mask != "none"),
    *(Case("s", "where", -1e4, cast="float16", place=place) for place in ("product", "mask", "softmax")),
    *(Case("s", mask, -1e9, cast="bfloat16", place="mask", is_whole=True) for mask in ("where", "added")),
    Case("(s + b) f", "none", cast="bfloat16", place="bias"),
    *(Case("s", mask, -INFINITY) for mask in ("where", "where of ones", "causal")),
    *(Case("s", mask, LOWEST) for mask in ("where of ones", "causal, then padding")),
    Case("s + b", "where, then a factor", -9.0, is_whole=True),
    Case("s + b", "added"),
    *(Dropout(keep, times) for keep, times in ((0.5, 2.0), (0.9, 1 / 0.9), (0.99, 1.0), (0.99, 1 / 0.99))),
]
# rows of nothing but minus infinity, in float16 at least: NaN where TensorFlow has NaN, and nowhere else
UNBOUNDED = [Case("s", "where of ones", LOWEST, is_whole=True), Case("s", "where", -INFINITY, is_whole=True)]
BY_NIGHT = [
    Case(*names, low, is_whole, factor, shape, *cast)
    for *names, low, is_whole, factor, shape, cast in itertools.product(
        BIASES, MASKS, (-9.0, -1e4, -1e9, LOWEST, -INFINITY), (False, True), (0.5, -1 / 3),
        ((1, HEADS, LENGTH, LENGTH), (LENGTH,)), (("", ""), ("float16", "bias"), ("bfloat16", "mask"), ("", "")))
    if low != -INFINITY or "integer" not in names[1]
]  # fmt: skip


def is_sane(case, dtype):
    """Whether the plan's own nodes give numbers: where they do not, NaN would be equal to NaN everywhere."""
    if not isinstance(case, Case):
        return True
    low = held(case.low, "float16" if case.cast == "float16" else dtype)
    plain = case.low == -INFINITY and (case.mask in ADDS or "multiplied" in case.mask)
    return not plain and not (low == -INFINITY and (case.is_whole or case.mask in ADDS or case.mask == "multiplied"))


def fed():
    """Masks of [batch, 1, query, key]: in the first all rows have something, in the second some have nothing."""
    mask = np.random.RandomState(5).uniform(size=[BATCH, 1, LENGTH, LENGTH]) < 0.7
    mask |= np.eye(LENGTH, dtype=bool)
    whole = mask.copy()
    whole[0, :, 2:5] = False
    return [mask, whole]


def computed(step, with_calls):
    """(What a Prepared gives on this CPU, its Attention), with its attention as calls or as it is."""

    def on(prepared, platform):
        return replace(prepared, manner=replace(prepared.manner, has_kernels=with_calls))

    with mock.patch.object(step_function.Prepared, "on", on):
        programs = StepPrograms(step, 1, None)
        return programs.run(fed()), programs.attention


def difference(actual, expected, near):
    """How far two arrays are apart, of what may be; 0 where both are NaN."""
    actual, expected = (np.asarray(array, np.float64) for array in (actual, expected))
    nothing = np.isnan(expected)
    if (np.isnan(actual) != nothing).any():
        return INFINITY
    largest = np.abs(expected[~nothing]).max(initial=0.0)
    return np.abs(actual - expected)[~nothing].max(initial=0.0) / (near * largest + 1e-6)


def lines_of(cases, dtype):
    """Returns a line for each result that differs, and each case that is taken or left against expectation."""
    options, near = MODES[dtype]
    drawn = np.random.RandomState(0)
    names = {"case%d" % number: case for number, case in enumerate(cases)}
    with tf.Graph().as_default() as graph, tf.Session(graph=graph) as session:
        masks = [tf.placeholder(tf.bool, mask.shape, "mask%d" % number) for number, mask in enumerate(fed())]
        attentions = {}
        for name, case in names.items():
            with tf.variable_scope(name):
                attentions[name] = case.build(masks, drawn)
        session.run(tf.global_variables_initializer())
        fetches = [tensor for _, tensors in attentions.values() for tensor in tensors]
        step = step_function.prepare(Source.of(session), fetches, masks, **options)
    (results, attention), (expected_ones, _) = (computed(step, with_calls) for with_calls in (True, False))
    is_call = {kernel.name.split("/")[0] for kernel in attention.taken}
    lines = ["%s is %s" % (case, "taken" if name in is_call else dict(attention.misses).get(name + "/softmax"))
             for name, case in names.items() if (name in is_call) != case.is_taken(dtype)]  # fmt: skip
    results = zip(results, expected_ones)
    for name, (kinds, _) in attentions.items():
        for kind, (actual, expected) in zip(kinds, results):
            assert names[name] in UNBOUNDED or not np.isnan(expected).any(), names[name]
            off = difference(actual, expected, near)
            if not off <= 1:
                lines.append("%s: %s is off by %.3g of what it may be" % (names[name], kind, off))
    return lines


@pytest.mark.by_day("float32", "float16")
@pytest.mark.parametrize("dtype", MODES)
def test_biases_and_masks_are_as_the_graph_has_them(dtype):
    cases = [case for case in BY_DAY if is_sane(case, dtype)] + UNBOUNDED
    assert len(cases) > 15
    assert not lines_of(cases, dtype)


@pytest.mark.nightly
@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("dtype", MODES)
def test_more_biases_and_masks_are_as_the_graph_has_them(dtype, bias):
    cases = [case for case in BY_NIGHT if case.bias == bias and is_sane(case, dtype)]
    assert not lines_of(random.Random(dtype + bias).sample(cases, 40), dtype)
