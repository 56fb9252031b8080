"""Steps of `npu_shim.step` beside sessions: TensorArrays that grow while loops run, and how long they are."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

jax = pytest.importorskip("jax", reason="JAX is not installed (extra [pjrt])")
from step_runs import Step, compared, fed, program_of  # noqa: E402

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


def test_elements_without_numbers_are_concatenated():
    x, value = fed(np.float32([0.3, 0.6]))
    rows = lambda size: tf.TensorArray(tf.float32, 2).unstack(tf.reshape(x[:size], [2, 1, -1])).concat()  # noqa: E731
    compared([rows(0), rows(2)], {x: value})


def test_rows_whose_number_depends_on_data_are_no_element():
    x, value = fed(np.float32([0.3, -0.6]))
    kept = tf.TensorArray(tf.float32, 1).write(0, tf.boolean_mask(x, x > 0)).stack()
    with pytest.raises(Refusal, match=r"rows (whose number )?depends? on data"):
        compared([kept], {x: value})


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


def test_elements_of_several_shapes_are_refused():
    """JAX writes a smaller element into a part of its place, and repeats it where it is added."""
    x, value = fed(np.ones([4, 3], np.float32))
    array = tf.TensorArray(tf.float32, 2, infer_shape=False, clear_after_read=False).write(0, x).write(1, x[:1])
    looped = tf.TensorArray(tf.float32, 3, infer_shape=False)
    looped = tf.while_loop(lambda i, _: i < 3, lambda i, a: (i + 1, a.write(i, x[: 4 - i])), (0, looped))[1]
    for fetch in (array.read(1), looped.read(2)):
        with pytest.raises(Refusal, match=r"its elements have several shapes: \[4, 3\] and \[[13], 3\]"):
            Step(tf.get_default_graph(), [fetch], feeds=[x])({x: value})


def filled(place, count=3, size=3):
    """A TensorArray whose places are written in a loop, and read in another one."""

    def build(x, n, k):
        array = tf.TensorArray(tf.float32, size, element_shape=[3], clear_after_read=False)
        write = lambda i, array: (i + 1, array.write(place(i, k), x * tf.cast(i + 1, tf.float32)))  # noqa: E731
        return tf.while_loop(lambda i, _: i < (count or n), write, [0, array])[1].stack()

    return build


def unstacked(x):
    return tf.TensorArray(tf.float32, 3, clear_after_read=False).unstack(x)


def read_in_a_loop(place):
    def build(x, n, k):
        array = unstacked(x)
        return tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y + array.read(place(i, k))), [0, 0.0])[1]

    return build


def read_in_a_condition(x, n, k):
    array = unstacked(x)
    return tf.while_loop(lambda i, y: (array.read(i + k) < 9.0) & (i < 2), lambda i, y: (i + 1, y * 2), [0, x])[1]


IN_RANGE = {  # of x [3], its size n and k -> the k of SHIFTS with which all places are in range
    "written": (filled(lambda i, k: i + k), (0,)),
    "written as often as is fed": (filled(lambda i, k: i + k, 0), (0,)),
    "read in a loop": (read_in_a_loop(lambda i, k: i + k), (0,)),
    "read backwards in a loop": (read_in_a_loop(lambda i, k: 2 - i + k), (0,)),
    "read in a condition": (read_in_a_condition, (0,)),
    "read": (lambda x, n, k: unstacked(x).read(2 + k) * unstacked(x).gather([0, 2]), (0, -1)),
    "read from the front": (lambda x, n, k: unstacked(x).read(k), (0, 1)),
    "read on a side": (lambda x, n, k: tf.cond(x[0] > 0, lambda: unstacked(x).read(1 + k), lambda: x[0]), (0, 1, -1)),
    "gathered": (lambda x, n, k: unstacked(x).gather([k, 2, 1 + k]), (0, 1)),
    "scattered": (lambda x, n, k: tf.TensorArray(tf.float32, 3).scatter([0 + k, 1 + k, 2 + k], x).stack(), (0,)),
}
SHIFTS = (0, 1, -1, -4)
NOT_TRAINED = ("written as often as is fed", "read in a condition")
OUT_OF_RANGE = {
    "written at once": lambda x: tf.TensorArray(tf.float32, 2).scatter([0, 1, 2], x).stack(),
    "written before the first": lambda x: tf.TensorArray(tf.float32, 2).write(-1, x).stack(),
    "read": lambda x: unstacked(x).read(3),
    "read before the first": lambda x: unstacked(x).read(-1),
    "gathered": lambda x: unstacked(x).gather([0, 3]),
}


def test_places_out_of_range_are_told(version):
    """By fetches that are not numbers; a session raises an error, or reads memory that is not its own."""
    x, value = fed(np.float32([0.3, 0.6, 0.9]))
    (n, three), (k, _) = fed(np.int32(3)), fed(np.int32(0))
    told = {}
    with tf.Session() as session:
        for name, (build, shifts) in IN_RANGE.items():
            y = build(x, n, k)
            fetches = [tf.reduce_sum(y), *([] if name in NOT_TRAINED else tf.gradients(y, x))]
            step = Step(tf.get_default_graph(), fetches, (), [x, n, k])
            for shift in SHIFTS:
                feeds = {x: value, n: three, k: np.int32(shift)}
                wanted = session.run(fetches, feeds) if shift in shifts else [np.float32(np.nan)] * len(fetches)
                got = step(feeds)
                if not all(np.allclose(*pair, equal_nan=True) for pair in zip(got, wanted)):
                    told[name, shift] = got, wanted
    assert not told


def test_known_places_out_of_range_are_refused(version):
    x, value = fed(np.float32([0.3, 0.6, 0.9]))
    told = {}
    for name, build in OUT_OF_RANGE.items():
        program = program_of(tf.get_default_graph(), [build(x)], [x])
        with interpreter.traced_as_tensorflow(), pytest.raises(Refusal) as refused:
            jax.eval_shape(interpreter.function(program), {}, {x.name: value})
        told[name] = refused.value.why
    assert {name: why for name, why in told.items() if "out of range" not in why} == {}


def test_a_map_in_a_map(version):
    """Some of what the inner one keeps for its gradient is one known list in each iteration of the outer one."""
    x, value = fed(np.float32([[0.7, 0.9, 1.2], [0.1, 0.2, 0.3]]))
    w = tf.get_variable("w", initializer=np.float32([1.5]), use_resource=True)
    y = tf.map_fn(lambda row: tf.map_fn(lambda one: tf.tanh(one * w[0]), row), x)
    compared([y, *tf.gradients(tf.reduce_sum(y**2), [x, w])], {x: value}, tolerance=1e-5)


BRANCHES = {
    "a side": lambda n, x: tf.cond(n > 2, lambda: tf.fill([n, 3], 2.0), lambda: x),
    "a loop on a side": lambda n, x: tf.cond(
        n > 2, lambda: tf.while_loop(lambda i, y: i < 2, lambda i, y: (i + 1, y + tf.fill([n, 3], 2.0)), [0, x])[1],
        lambda: x),
}  # fmt: skip


@pytest.mark.parametrize("name", BRANCHES)
def test_what_must_be_known_on_a_side_names_its_feed(version, name):
    (x, value), (n, three) = fed(np.ones((3, 3), np.float32)), fed(np.int32(3))
    y = BRANCHES[name](n, x)
    with pytest.raises(Refusal) as refused:
        compared([y], {x: value, n: three})
    assert refused.value.feeds == (n.name,)
    compared([y], {x: value}, {n: three})
