"""Data-sized rows in interpreted steps beside sessions: what takes them, their numbers, their gradients."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

jax = pytest.importorskip("jax", reason="JAX is not installed (extra [pjrt])")
from step_runs import Step, compared, fed, program_of  # noqa: E402

from npu_shim.step import interpreter, refusals  # noqa: E402
from npu_shim.step.control_flow import loops  # noqa: E402
from npu_shim.step.refusals import Refusal  # noqa: E402

MASKS = [[1, 0, 1, 1, 0, 1], [1, 1, 1, 1, 1, 1], [0, 0, 0, 1, 0, 0], [0, 1, 0, 0, 1, 0]]
GIVEN = np.random.RandomState(0).randn(6, 3).astype(np.float32)


def pairs(rows, n):
    """Something of each of some rows, and of each of n others, [rows, others], as overlaps of boxes are computed."""
    others = tf.constant(GIVEN)[:n]
    one = tf.reshape(tf.tile(tf.expand_dims(rows, 1), [1, 1, tf.shape(others)[0]]), [-1, 3])
    two = tf.tile(others, [tf.shape(rows)[0], 1])
    return tf.reshape(tf.reduce_sum(one * two + one, 1), [tf.shape(rows)[0], tf.shape(others)[0]])


OF_ROWS = {  # of rows [n, 3], n a number that data says, and their number
    "from 1 on": lambda rows, n: rows[1:],
    "from 1 to 3": lambda rows, n: rows[1:3],
    "but the last": lambda rows, n: rows[:-1],
    "the last two": lambda rows, n: rows[-2:],
    "every other": lambda rows, n: rows[::2],
    "backwards": lambda rows, n: rows[::-1],
    "backwards from the last but one": lambda rows, n: rows[-2::-2],
    "a slice of a slice": lambda rows, n: rows[:3][1:],
    "from as many as there are": lambda rows, n: rows[n:],
    "columns too": lambda rows, n: rows[1:, 1:],
    "a column": lambda rows, n: rows[1:, 0],
    "behind a new axis": lambda rows, n: rows[:, None, 1:],
    "the first": lambda rows, n: rows[0],
    "the last": lambda rows, n: rows[-1],
    "an element": lambda rows, n: rows[n - 1, 1],
    "a part": lambda rows, n: tf.slice(rows, [0, 1], [-1, 2]),
    "all but the first of a tensor": lambda rows, n: tf.constant(GIVEN)[n - 1 :] * rows[0],
    "as many as there are": lambda rows, n: tf.constant(GIVEN)[:n] * rows,
    "as many, every other": lambda rows, n: tf.constant(GIVEN)[:n:2, 1:],
    "a column of as many": lambda rows, n: tf.transpose(GIVEN)[1, :n],
    "reversed": lambda rows, n: tf.reverse(rows, [0, 1]) * rows,
    "sums up to each": lambda rows, n: tf.cumsum(rows) + tf.cumsum(rows, reverse=True, exclusive=True),
    "repeated": lambda rows, n: tf.tile(rows, [2, 2]),
    "joined": lambda rows, n: tf.concat([rows, GIVEN[:2], rows], 0),
    "the largest": lambda rows, n: tf.gather(rows, tf.argmax(rows, 0)),
    "one with each": lambda rows, n: rows - rows[0],
    "one row with each": lambda rows, n: rows + tf.boolean_mask(GIVEN, tf.equal(tf.range(6), tf.minimum(n, 1) + 1)),
    "softmax": lambda rows, n: tf.nn.softmax(rows[1:]),
    "a range": lambda rows, n: tf.cast(tf.range(1, 8 - n, 2), tf.float32),
    "a falling range": lambda rows, n: tf.cast(tf.range(6, n, -1), tf.float32),
    "a range from there": lambda rows, n: tf.cast(tf.range(n, 7), tf.float32),
    "copies": lambda rows, n: tf.tile([1.0, 2.0], [6 - n]),
    "ones": lambda rows, n: tf.ones([8 - n, 2]),
    "scattered": lambda rows, n: tf.scatter_nd(tf.cast(tf.nn.relu(rows[:, :1]), tf.int32), rows, [4, 3]),
    "sorted": lambda rows, n: tf.sort(rows[:, 0]),
    "the best of each": lambda rows, n: tf.nn.top_k(rows, 2)[0],
    "the best of a column": lambda rows, n: tf.nn.top_k(GIVEN[:, 1], n)[0] * rows[:, 1],
    "a number by that": lambda rows, n: tf.gather([5.0, 4.0, 3.0, 2.0, 1.0, 0.0], n - 1),
    "shuffled": lambda rows, n: tf.random_shuffle(rows, seed=3),
    "the largest, if any": lambda rows, n: tf.reduce_max(rows[: 6 - n], 0) + tf.reduce_max(rows[6:]),
    "the best of pairs": lambda rows, n: tf.reduce_max(pairs(rows[1:], 7 - n), 1),
    "the best of pairs, if any": lambda rows, n: tf.reduce_max(pairs(rows, 6 - n), 1),
    "where it is": lambda rows, n: tf.cast(tf.argmax(pairs(rows, 8 - n), 1), tf.float32) + rows[:, 1],
    "sums of pairs": lambda rows, n: tf.reduce_sum(tf.gather(pairs(rows, 7 - n), tf.range(n)[::-1]), 1),
    "some columns": lambda rows, n: tf.gather(rows, [2, 0], axis=1) * tf.gather(rows, [1], axis=-1),
    "the different": lambda rows, n: tf.cast(tf.unique(tf.cast(rows[:, 0] * 2, tf.int32))[1], tf.float32),
}
NOT_TRAINED = (
    "the best of pairs",
    "the best of pairs, if any",
    "sums of pairs",
    "repeated",
    "some columns",
    "sorted",
    "the best of a column",
)  # their gradients are refused


@pytest.fixture
def network():
    """(Feeds x and mask, their variable, name -> (value, its number of elements))."""
    with tf.Graph().as_default():
        x, mask = tf.placeholder(tf.float32, [6, 3], "x"), tf.placeholder(tf.bool, [6], "mask")
        w = tf.get_variable("w", initializer=np.float32(np.eye(3) + 0.3), use_resource=True)
        rows = tf.boolean_mask(tf.matmul(x, w), mask)
        values = {name: change(rows, tf.shape(rows)[0]) for name, change in OF_ROWS.items()}
        yield x, mask, w, values


def test_rows_are_those_of_a_session(network):
    x, mask, w, values = network
    trained = [value for name, value in values.items() if name not in NOT_TRAINED]
    weighted = [tf.reduce_sum(tf.tanh(value) * (1.0 + at)) for at, value in enumerate(trained)]
    fetches = [*values.values(), *(tf.shape(value) for value in values.values())]
    fetches.append(tf.gradients(tf.add_n(weighted), w)[0])
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        step = Step(tf.get_default_graph(), fetches, {"w": session.run(w)}, [x, mask])
        for bits in MASKS:
            feeds = {x: GIVEN, mask: np.array(bits, bool)}
            names = [*values, *("shape: " + name for name in values), "gradient"]
            for name, got, want in zip(names, step(feeds), session.run(fetches, feeds)):
                np.testing.assert_allclose(got, want, 1e-5, 1e-5, err_msg="%s of %s" % (name, bits))


def test_the_gradient_of_repeated_slices_names_what_had_to_be_known(network):
    x, mask, w, _ = network
    rows = tf.boolean_mask(tf.matmul(x, w), mask)
    fetch = tf.gradients(tf.reduce_sum(tf.sin(tf.tile(rows[:2][1:], [2, 1]))), w)[0]
    step = interpreter.function(program_of(tf.get_default_graph(), [fetch], [x, mask]))
    feeds = {x.name: GIVEN, mask.name: np.array(MASKS[0], bool)}
    with interpreter.traced_as_tensorflow(), pytest.raises(Refusal, match="its input 1 had to be known"):
        jax.eval_shape(step, {"w": np.eye(3, dtype=np.float32)}, feeds)


@pytest.mark.parametrize("version", [1, 2])
def test_gradients_of_slices_of_counted_rows_in_a_loop(version, request):
    """x[i : i + 1] is one row, as far as is known while the gradient is traced."""
    request.getfixturevalue("control_flow_of_version_%d" % version)
    with tf.Graph().as_default():
        x, given = fed(np.linspace(-1, 1, 12).reshape(4, 3).astype(np.float32))
        w = tf.get_variable("w", initializer=np.float32(np.eye(3) + 0.2))
        body = lambda i, h: (i + 1, h + tf.tanh(tf.matmul(x[i : i + 1], w)) * h[:1])  # noqa: E731
        h = tf.while_loop(lambda i, h: i < 4, body, [0, tf.ones([2, 3])])[1]
        compared([h, *tf.gradients(tf.reduce_sum(tf.square(h)), [w, x])], {x: given}, tolerance=1e-5)


def test_rows_of_a_table_that_data_choose_in_each_of_many_iterations(request):
    """More iterations than are unrolled, whose gradient gathers as many rows as data say."""
    request.getfixturevalue("control_flow_of_version_1")
    with tf.Graph().as_default():
        x, given = fed(np.float32([0.4, 1.4, -1]))
        table = tf.get_variable("t", initializer=np.linspace(-1, 1, 8, dtype=np.float32).reshape(4, 2))

        def body(i, h):
            ids = tf.boolean_mask([2, 0, 1], x > tf.cast(i % 3, tf.float32))
            return i + 1, h + tf.reduce_sum(tf.square(tf.nn.embedding_lookup(table, ids)))

        h = tf.while_loop(lambda i, h: i < loops.UNROLLED + 4, body, [0, 0.0])[1]
        gradient = tf.gradients(h, table)[0]
        assert isinstance(gradient, tf.IndexedSlices)
        compared([h, tf.convert_to_tensor(gradient)], {x: given}, tolerance=1e-4)


def test_what_a_rule_stumbles_over_is_said_in_words_of_the_step():
    """The libraries with which it computes have words of their own."""
    told = []
    for fails in (lambda x: int(x[0]), lambda x: np.asarray(x), lambda x: jax.numpy.reshape(x, (3,))):
        try:
            jax.jit(fails)(np.ones(2))
        except (TypeError, ValueError) as error:
            told.append(refusals.why(error))
    assert told[:2] == ["its rule had to know a value that is computed when the step runs"] * 2
    assert told[2].startswith("its rule does not take such values (cannot reshape")
    assert refusals.why(refusals.Unsupported("its own words")) == "its own words"


def test_rows_beside_as_many_of_a_tensor(network):
    """Concatenations, sums and products over them: where data say another number, what is fetched is NaN."""
    x, mask, w, _ = network
    beside = tf.constant(GIVEN[:4])
    rows = tf.boolean_mask(tf.matmul(x, w), mask)
    joined = tf.concat([rows, beside], 1)
    segments = tf.boolean_mask([0, 1, 1, 0, 2, 2], mask)
    summed = tf.unsorted_segment_sum(tf.tanh(joined), segments, 3)
    values = [joined, tf.add_n([rows, beside]), tf.matmul(beside, rows, transpose_a=True), rows * beside]
    fetches = [*values, summed, *tf.gradients([tf.square(summed), values[1], tf.sin(values[2])], w)]
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        step = Step(tf.get_default_graph(), fetches, {"w": session.run(w)}, [x, mask])
        feeds = {x: GIVEN, mask: np.array(MASKS[0], bool)}
        for fetch, got, want in zip(fetches, step(feeds), session.run(fetches, feeds)):
            np.testing.assert_allclose(got, want, 1e-5, 1e-5, err_msg=fetch.name)
    assert np.isnan(step({x: GIVEN, mask: np.array(MASKS[3], bool)})[0]).all()


JOINED = {  # what takes as many rows on both sides
    "products": lambda rows, others: rows * others,
    "choices": lambda rows, others: tf.where(rows > 0, rows, others),
    "sums of several": lambda rows, others: tf.add_n([rows, others]),
    "columns": lambda rows, others: tf.concat([rows, others], 1),
    "a product over them": lambda rows, others: tf.matmul(rows, others, transpose_a=True),
    "sums of segments": lambda rows, others: tf.unsorted_segment_sum(rows, tf.cast(others[:, 0] > 1, tf.int32), 2),
}


@pytest.mark.parametrize("name", JOINED)
def test_rows_beside_as_many_others(name, network):
    """Where there are other ones a session ends with an error; elementwise ops take a single row with each other."""
    x, mask, w, _ = network
    other = tf.placeholder(tf.bool, [6], "other")
    value = JOINED[name](tf.boolean_mask(tf.matmul(x, w), mask), tf.boolean_mask(tf.square(x), other))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        step = Step(tf.get_default_graph(), [value], {"w": session.run(w)}, [x, mask, other])
        for bits in ("110110", "010000", "010011"):
            feeds = {x: GIVEN, mask: np.array([1, 0, 1, 0, 1, 1], bool), other: np.array([*map(int, bits)], bool)}
            (got,) = step(feeds)
            try:
                np.testing.assert_allclose(got, session.run(value, feeds), 1e-5, 1e-5)
            except tf.errors.InvalidArgumentError:
                assert bits != "110110"
                assert np.isnan(got).all(), bits


def test_a_single_row_loses_its_dimension(network):
    """Of `tf.squeeze` without axes; then no session stands behind the step, which says NaN."""
    x, mask, _, _ = network
    value = tf.squeeze(tf.boolean_mask(x[:, :1], mask)) * 1.0
    step = Step(tf.get_default_graph(), [value], {}, [x, mask])
    with tf.Session() as session:
        for bits in ("110110", "010000", "000000"):
            feeds = {x: GIVEN, mask: np.array([*map(int, bits)], bool)}
            (got,), want = step(feeds), session.run(value, feeds)
            if want.ndim:
                np.testing.assert_array_equal(got, want)
            else:
                assert np.isnan(got).all()


NAMED = {  # what needs the second of some rows
    "an element": lambda rows: rows[1],
    "an element from the end": lambda rows: rows[-2, 0],
    "a slice": lambda rows: tf.slice(rows, [1, 0], [1, 2]),
    "rows": lambda rows: tf.gather(rows, [0, 1]),
    "elements": lambda rows: tf.gather_nd(rows, [[1, 2], [0, 0]]),
    "the best": lambda rows: tf.nn.top_k(rows[:, 1], 2)[0],
    "where it is": lambda rows: tf.cast(tf.argmax(rows[1:], 0), tf.float32),
    "columns": lambda rows: tf.gather(tf.transpose(rows), [1], axis=1),
    "where it is in columns": lambda rows: tf.cast(tf.argmin(tf.transpose(rows[1:]), 1), tf.float32),
}


@pytest.mark.parametrize("version", [1, 2])
def test_rows_that_are_named_by_number_must_be_there(version, network, request):
    """Where there are fewer a session ends with an error; on the side of a conditional that is not taken none is."""
    request.getfixturevalue("control_flow_of_version_%d" % version)
    x, mask, w, _ = network
    rows = tf.boolean_mask(tf.matmul(x, w), mask)
    values = {name: change(rows) for name, change in NAMED.items()}
    if_any = tf.cond(tf.shape(rows)[0] > 1, lambda: tf.nn.top_k(rows[:, 1], 2)[0] + rows[1, :2], lambda: rows[0, :2])
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        state, graph = {"w": session.run(w)}, tf.get_default_graph()
        for name, value in [*values.items(), ("if any", if_any)]:
            step = Step(graph, [value], state, [x, mask])
            for bits in (MASKS[0], MASKS[2]):
                feeds = {x: GIVEN, mask: np.array(bits, bool)}
                (got,) = step(feeds)
                if name == "if any" or bits is MASKS[0]:
                    np.testing.assert_allclose(got, session.run(value, feeds), 1e-5, 1e-5, err_msg=name)
                else:
                    assert np.isnan(got).all(), name
                    with pytest.raises(tf.errors.InvalidArgumentError):
                        session.run(value, feeds)


@pytest.mark.parametrize("combiner", ["sum", pytest.param("mean", marks=pytest.mark.nightly), "sqrtn"])
def test_weighted_lookups_and_their_gradients(combiner):
    """Ids below zero, and, but for a sum, those of no weight, are left out; two rows of the batch have no ids."""
    with tf.Graph().as_default():
        tf.set_random_seed(1)
        at, values, weights = fed(np.int64([[0, 0], [0, 2], [1, 0], [3, 1], [3, 2], [3, 3], [4, 0]])), fed(
            np.int64([1, -1, 3, 8, 8, 0, 2])), fed(np.float32([0.5, 0.2, 0, 1, 2, -1, 0.3]))  # fmt: skip
        others = fed(at[1])
        table = tf.get_variable("t", initializer=np.random.RandomState(0).randn(9, 3).astype("f"))
        ids, weighted = tf.SparseTensor(at[0], values[0], [6, 5]), tf.SparseTensor(others[0], weights[0], [6, 5])
        summed = tf.nn.safe_embedding_lookup_sparse(table, ids, weighted, combiner=combiner)
        gradients = tf.gradients(tf.reduce_sum(tf.sin(summed)), [table, weights[0]])
        compared([summed, *map(tf.convert_to_tensor, gradients)], dict([at, values, weights, others]), tolerance=1e-5)


@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min", "mean"])
def test_segments_of_as_many_rows_as_data_say(kind, network):
    """By ids of which there are as many; the gradients too."""
    x, mask, w, _ = network
    ids = tf.boolean_mask([0, 1, 1, 1, 3, 3], mask)
    result = getattr(tf, "segment_" + kind)(tf.boolean_mask(tf.tanh(tf.matmul(x, w)), mask), ids)
    gradient = [] if kind == "prod" else tf.gradients(tf.reduce_sum(tf.sin(result)), w)
    program, given = program_of(tf.get_default_graph(), [result, *gradient], [x, mask]), np.array(MASKS[0], bool)
    segments = {node.name: 4 for node in program.graph.nodes.values() if node.op.startswith("Segment")}
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        wanted, state = session.run([result, *gradient], {x: GIVEN, mask: given}), {"w": session.run(w)}
    with interpreter.traced_as_tensorflow():
        step = jax.jit(interpreter.function(program, told=segments))
        got = step(state, {x.name: GIVEN, mask.name: given})[1]
    for fetch, want in zip([result, *gradient], wanted):
        np.testing.assert_allclose(got[fetch.name], want, 1e-5, 1e-6)


def test_parts_that_are_stitched_reach_to_the_last_row(network):
    """Else they are fewer rows in a session; all parts of a partition do so whatever data say."""
    x, mask, w, _ = network
    rows, places = (tf.boolean_mask(value, mask) for value in (tf.matmul(x, w), tf.range(6)))
    parts = [tf.dynamic_partition(value, tf.cast(mask, tf.int32), 2) for value in (tf.range(6), tf.matmul(x, w))]
    fetches = [tf.dynamic_stitch([places, [0]], [rows, tf.zeros([1, 3])]), tf.dynamic_stitch(*parts)]
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        state, graph = {"w": session.run(w)}, tf.get_default_graph()
        some, every = (Step(graph, [fetch], state, [x, mask]) for fetch in fetches)
        for bits in MASKS[:3]:
            feeds = {x: GIVEN, mask: np.array(bits, bool)}
            wanted = session.run(fetches, feeds)
            np.testing.assert_allclose(every(feeds)[0], wanted[1], 1e-5, 1e-5)
            if bits[-1]:
                np.testing.assert_allclose(some(feeds)[0], wanted[0], 1e-5, 1e-5)
            else:
                assert np.isnan(some(feeds)[0]).all()


def test_sums_of_segments_by_rows_of_as_many_ids_as_there_is_room_for(network):
    """Regression: columns of ids were left out in the place of the rows that are not there."""
    x, mask, w, _ = network
    ids = tf.boolean_mask(np.arange(36).reshape(6, 6) % 5, mask)
    rows = tf.tile(tf.boolean_mask(tf.matmul(x, w), mask)[:, :1], [1, 6])
    fetch = tf.unsorted_segment_sum(rows, ids, 5)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        step = Step(tf.get_default_graph(), [fetch], {"w": session.run(w)}, [x, mask])
        feeds = {x: GIVEN, mask: np.array(MASKS[0], bool)}
        np.testing.assert_allclose(step(feeds)[0], session.run(fetch, feeds), 1e-5, 1e-5)


def test_a_number_of_segments_that_is_not_known_is_asked_for(network):
    x, mask, w, _ = network
    rows, count = tf.boolean_mask(tf.matmul(x, w), mask), tf.placeholder(tf.int32, [2], "count")
    number = tf.reduce_sum(count)
    fetch = tf.unsorted_segment_sum(rows, tf.boolean_mask([0, 1, 1, 0, 2, 2], mask), number)
    program = program_of(tf.get_default_graph(), [fetch], [x, mask, count])
    given = {x.name: GIVEN, mask.name: np.array(MASKS[0], bool), count.name: np.int32([1, 2])}
    state = {"w": np.eye(3, dtype=np.float32)}
    with interpreter.traced_as_tensorflow(), pytest.raises(Refusal, match="its input 2 had to be known") as refused:
        jax.eval_shape(interpreter.function(program, told={}), state, given)
    assert refused.value.asked == (number.name,)
    with interpreter.traced_as_tensorflow():
        shapes = jax.eval_shape(interpreter.function(program, told={number.name: np.int32(3)}), state, given)[1]
    assert shapes[fetch.name].shape == (3, 3)


def test_columns_by_as_many_indices_as_data_say(network):
    """A gather on another axis than the first, as masks of instances are chosen."""
    x, mask, w, _ = network
    chosen = tf.where(mask)[:, 0]
    columns = tf.gather(tf.reshape(tf.matmul(x, w), [1, 3, 6]), chosen, axis=-1)
    again = tf.transpose(columns, [2, 0, 1])
    compared_with = {x: GIVEN, mask: np.array(MASKS[0], bool)}
    compared([again, tf.reduce_sum(tf.tanh(columns), 2), tf.shape(columns)], compared_with, tolerance=1e-5)


def test_transposed_rows(network):
    """What takes rows takes them whichever of their dimensions is counted; a shape is taken apart and joined again."""
    x, mask, w, _ = network
    rows = tf.boolean_mask(tf.matmul(x, w), mask)
    count, width = tf.unstack(tf.shape(rows))
    columns = tf.transpose(tf.reshape(rows, [count, width]))
    moved = [tf.cumsum(columns, 1), tf.cumprod(columns, 1, exclusive=True), tf.reverse(columns, [1])]
    fetches = [
        *map(tf.transpose, moved),
        tf.transpose(tf.squeeze(tf.expand_dims(columns, 1), 1)),
        *tf.unstack(columns)[1:],
        tf.squeeze(tf.split(columns, [1, 2])[0], 0),
        tf.reduce_prod(columns, 1),
        tf.reduce_all(columns > -1, 1),
        tf.reduce_any(columns > 1, 1),
        tf.argmax(columns, 1),
        tf.argmin(columns),
        tf.nn.l2_loss(columns),
        *tf.gradients([tf.tanh(part) for part in moved], w),
    ]
    for bits in MASKS[::2]:
        compared(fetches, {x: GIVEN, mask: np.array(bits, bool)}, tolerance=1e-5)


def test_rows_behind_another_dimension(network):
    """A layer of what is not padding, as one example of a batch, as in Tensor2Tensor; dropout has its numbers."""
    x, mask, w, _ = network
    places = tf.where(mask)
    batch = tf.expand_dims(tf.gather_nd(tf.matmul(x, w), places), 0)
    hidden = tf.tensordot(batch, tf.constant(GIVEN[:3]), [[2], [0]])
    kept = tf.nn.relu(tf.nn.bias_add(hidden, w[0])) * tf.random_uniform(tf.shape(hidden), seed=3)
    noisy = kept + tf.random_normal(tf.shape(kept)[1:], seed=4)
    restored = tf.scatter_nd(places, tf.squeeze(noisy, axis=0), [6, 3])
    fetches = [restored, tf.squeeze(kept), *tf.gradients(tf.square(restored), w)]
    compared(fetches, {x: GIVEN, mask: np.array(MASKS[0], bool)}, tolerance=1e-5, runs=2)


@pytest.mark.parametrize("use_resource", [False, True])
def test_of_ids_of_a_table_there_are_no_more_different_ones_than_it_has_rows(own_graph, use_resource):
    """What devices exchange of a lookup's gradient is as large as the table, not as the batch."""
    ids, given = fed(np.array([[2, 0], [2, 2], [0, 2]], np.int32))
    table = tf.get_variable("table", [3, 2], use_resource=use_resource)
    loss = tf.reduce_sum(tf.square(tf.gather(table, ids)))
    train = tf.train.AdamOptimizer(0.1).minimize(loss)
    compared([loss, train], {ids: given}, runs=3)
    different, places = tf.unique(tf.reshape(ids, [-1]))
    program = program_of(tf.get_default_graph(), [loss, different, places], [ids])
    state = {"table": np.ones([3, 2], np.float32)}
    with interpreter.traced_as_tensorflow():
        shapes = jax.eval_shape(interpreter.function(program), state, {ids.name: given})[1]
    assert [shapes[fetch.name].shape for fetch in (different, places)] == [(3,), (6,)]


def test_parts_along_a_dimension_that_depends_on_data(network):
    """Masks of instances of which some are left out, and others again."""
    x, mask, w, _ = network
    columns = tf.gather(tf.reshape(tf.matmul(x, w), [1, 3, 6]), tf.where(mask)[:, 0], axis=2)
    again = tf.gather(columns, tf.where(tf.boolean_mask(GIVEN[:, 0] > 0, mask))[:, 0], axis=2)
    first = tf.gather(columns, [0, 1], axis=-1)
    for bits in MASKS[:2]:
        compared([tf.transpose(again, [2, 0, 1]), first], {x: GIVEN, mask: np.array(bits, bool)}, tolerance=1e-5)


def test_crops_of_as_many_boxes_as_data_say(network):
    x, mask, w, _ = network
    image = tf.reshape(tf.matmul(x, w), [2, 3, 3, 1])
    boxes = tf.boolean_mask(tf.constant(np.abs(np.tile(GIVEN[:, :2], 2)) % 1), mask)
    crops = tf.image.crop_and_resize(image, boxes, tf.range(tf.shape(boxes)[0]) % 2, [2, 2])
    fetches = [crops, *tf.gradients(tf.square(crops), w)]
    for bits in MASKS[::2]:
        compared(fetches, {x: GIVEN, mask: np.array(bits, bool)}, tolerance=1e-5)


def test_rows_of_a_shape_that_is_known_are_so_many(network):
    x, mask, w, _ = network
    rows = tf.boolean_mask(tf.matmul(x, w), mask)
    fetches = [
        tf.matmul(GIVEN[:, :2], tf.reshape(rows, [2, 6])),
        tf.gradients(tf.square(tf.reshape(rows, [2, 6])), w)[0],
    ]
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        step = Step(tf.get_default_graph(), fetches, {"w": session.run(w)}, [x, mask])
        feeds = {x: GIVEN, mask: np.array(MASKS[0], bool)}
        for got, want in zip(step(feeds), session.run(fetches, feeds)):
            np.testing.assert_allclose(got, want, 1e-5, 1e-5)
    assert np.isnan(step({x: GIVEN, mask: np.array(MASKS[3], bool)})[0]).all()


def test_a_conditional_of_two_shapes(control_flow_of_version_1):
    """A loss of each row, or one number where there is none, of which the mean is taken: as in losses of detectors."""
    with tf.Graph().as_default():
        x, given = fed(GIVEN)
        w = tf.get_variable("w", initializer=np.float32(np.eye(3) + 0.2))
        rows = tf.gather_nd(tf.matmul(x, w), tf.where(x[:, 0] > 0))
        loss = tf.cond(tf.size(rows) > 0, lambda: tf.square(rows), lambda: tf.constant(0.5))
        mean = tf.reduce_mean(loss)
        assert loss.shape.ndims is None
        fetches = [mean, tf.reduce_sum(tf.tanh(loss)), tf.gradients(mean, w)[0], tf.rank(loss)]
        for value in (given, -np.abs(given)):
            compared(fetches, {x: value}, tolerance=1e-5)
