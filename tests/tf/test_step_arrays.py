"""Steps of `npu_shim.step` beside sessions: TensorArrays that grow while loops run, and how long they are."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

jax = pytest.importorskip("jax", reason="JAX is not installed (extra [pjrt])")
from step_runs import compared, fed, program_of  # noqa: E402

from npu_shim.step import interpreter  # noqa: E402
from npu_shim.step.refusals import Refusal  # noqa: E402


@pytest.fixture(autouse=True, params=[1, 2])
def version(request):
    was = tf.control_flow_v2_enabled()
    (tf.enable_control_flow_v2 if request.param == 2 else tf.disable_control_flow_v2)()
    with tf.Graph().as_default():
        yield request.param
    (tf.enable_control_flow_v2 if was else tf.disable_control_flow_v2)()


def decoded(x, goes_on, write):
    """What a decoder writes that goes on as long as it is told: [length, 3]."""

    def step(time, state, outputs):
        return time + 1, tf.sin(state) * 1.5, write(outputs, time, state)

    outputs = tf.TensorArray(tf.float32, 0, dynamic_size=True, element_shape=[3], clear_after_read=False)
    return tf.while_loop(goes_on, step, [0, x, outputs])[2]


def always(outputs, time, state):
    return outputs.write(time, state)


def by_turns(outputs, time, state):
    return tf.cond(time % 2 > 0, lambda: outputs.write(time // 2, state), lambda: outputs)


WRITES = {1: (always, by_turns), 2: (always,)}  # by version: branches of version 2 give lists of one length
BOUNDED = lambda time, state, outputs: (time < 7) & tf.reduce_all(state < 1.4)  # noqa: E731
COUNTED = lambda time, state, outputs: time < 6  # noqa: E731


def test_arrays_are_as_long_as_what_is_written_to_them(version):
    x, value = fed(np.float32([0.3, 0.6, 0.9]))
    arrays = [decoded(x, goes_on, write) for goes_on in (BOUNDED, COUNTED) for write in WRITES[version]]
    outputs, lengths = [array.stack() for array in arrays], [array.size() for array in arrays]
    losses = [tf.reduce_sum(tf.square(kept)) / tf.cast(length, tf.float32) for kept, length in zip(outputs, lengths)]
    gradients = tf.gradients(losses, x) if version == 1 else []  # version 2 keeps lists of several lengths for them
    compared([*outputs, *lengths, *losses, *gradients], {x: value}, tolerance=1e-5)


def test_an_array_that_has_elements_before_its_loop(version):
    x, value = fed(np.float32([0.3, 0.6, 0.9]))
    array = tf.TensorArray(tf.float32, 0, dynamic_size=True, element_shape=[3]).write(0, x)
    step = lambda time, state, outputs: (time + 1, tf.sin(state) * 1.5, outputs.write(time + 1, state))  # noqa: E731
    array = tf.while_loop(lambda time, *_: time < 4, step, [0, x, array])[2]
    loss = tf.reduce_sum(tf.square(array.stack()))
    gradients = tf.gradients(loss, x) if version == 1 else []
    compared([loss, array.size(), *gradients], {x: value}, tolerance=1e-5)


GROWING = {  # places in iterations 0 to 3 -> elements that the array begins with
    "behind the end": (lambda i: i, 3),
    "every second": (lambda i: i * 2, 4),
    "downwards": (lambda i: 4 - i, 2),
    "within": (lambda i: i, 6),
}


def test_arrays_that_begin_with_a_size_grow_by_the_places_that_are_written():
    x, value = fed(np.float32([0.3, 0.6, 0.9]))
    lengths = []
    for place, size in GROWING.values():
        array = tf.TensorArray(tf.float32, size, dynamic_size=True, element_shape=[3])
        step = lambda i, array, place=place: (i + 1, array.write(place(i), x * tf.cast(i, tf.float32)))  # noqa: E731
        lengths.append(tf.while_loop(lambda i, _: i <= 3, step, [0, array])[1].size())
    compared(lengths, {x: value})


def test_one_of_a_length_without_bound_is_refused():
    x, value = fed(np.float32([0.3, 0.6, 0.9]))
    outputs = decoded(x, lambda time, state, outputs: tf.reduce_all(state < 1.4), always).stack()
    program = program_of(tf.get_default_graph(), [outputs], [x])
    with interpreter.traced_as_tensorflow(), pytest.raises(Refusal, match="how many there are at most is not known"):
        jax.eval_shape(interpreter.function(program), {}, {x.name: value})
