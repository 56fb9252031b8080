"""Compiled steps with tensors whose number of rows is data: lookups of several partitions, masks, tf.unique."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import npu_shim
from npu_shim.rewriter.errors import PlanError
from npu_shim.xla import step_function

pytestmark = [
    pytest.mark.skipif(tf.__version__.startswith("1."), reason="compile_step needs TensorFlow 2.15"),
    pytest.mark.usefixtures("control_flow_of_version_1"),
]
STEPS = 3


def assert_as_in_a_session(build):
    """Holds some compiled steps against a session's; `build` takes ids and rows."""
    with tf.Graph().as_default() as graph:
        ids, x = tf.placeholder(tf.int32, [6], "ids"), tf.placeholder(tf.float32, [6, 3], "x")
        fetches = build(ids, x)
        variables = [variable.op.name for variable in tf.global_variables()]
        reads = [variable.read_value() for variable in tf.global_variables()]
        init = tf.global_variables_initializer()
    numbers = np.random.RandomState(1)
    batches = [{"ids:0": numbers.randint(0, 8, 6), "x:0": numbers.randint(1, 9, (6, 3))} for _ in range(STEPS)]
    batches.append({"ids:0": [2, 2, 2, 4, 4, 0], "x:0": numbers.randint(1, 9, (6, 3))})  # one partition has no rows
    with tf.Session(graph=graph) as session:
        session.run(init)
        expected = [session.run(fetches, batch) for batch in batches]
        values = dict(zip(variables, session.run(reads)))
    step = npu_shim.compile_step(graph, fetches, [ids, x], initializer=init)
    for batch, wanted in zip(batches, expected):
        for actual, value in zip(step(batch), wanted):
            if value is not None:
                assert np.shape(actual) == np.shape(value)
                np.testing.assert_allclose(actual, value, 1e-4, 1e-4)
    for name, value in step.state().items():
        np.testing.assert_allclose(value, values[name], 1e-4, 1e-4, err_msg=name)


def table(use_resource, parts=3):
    start = tf.constant(np.arange(24, dtype=np.float32).reshape(8, 3))
    splits = tf.fixed_size_partitioner(parts) if parts > 1 else None
    return tf.get_variable("table", initializer=start, partitioner=splits, use_resource=use_resource)


def trained(rows, x, optimizer):
    return [rows * 1.0, optimizer.minimize(tf.reduce_sum((rows - x) ** 2))]


@pytest.mark.parametrize("strategy", ["mod", "div"])
@pytest.mark.parametrize("use_resource", [False, True], ids=["reference", "resource"])
def test_lookups_of_partitions(strategy, use_resource):

    def build(ids, x):
        rows = tf.nn.embedding_lookup(table(use_resource), ids, partition_strategy=strategy)
        return trained(rows, x, tf.train.GradientDescentOptimizer(0.1))

    assert_as_in_a_session(build)


def test_lookups_are_one_program_for_all_ids():
    """Regression: for each batch's ids the step was compiled again, and it had no HLO of its own."""
    with tf.Graph().as_default() as graph:
        ids = tf.placeholder(tf.int32, [6], "ids")
        rows = tf.nn.embedding_lookup(table(True), ids)
    assert "s32[6]" in step_function.build(graph, [rows], [ids]).hlo().partition("\n")[0]


def test_lookups_of_partitions_by_computed_ids():
    """Was an error of XLA's, or the step before's numbers."""

    def build(ids, x):
        kept = tf.get_variable("kept", initializer=tf.zeros([6], tf.int32), use_resource=True)
        chosen = (kept.assign(ids) + 1) % 8
        return trained(tf.nn.embedding_lookup(table(True), chosen), x, tf.train.GradientDescentOptimizer(0.1))

    assert_as_in_a_session(build)


@pytest.mark.parametrize("parts", [1, 3])
def test_repeated_rows_are_trained_once(parts):
    """Regression: Adam's tf.unique took rows that were not there."""
    assert_as_in_a_session(
        lambda ids, x: trained(tf.nn.embedding_lookup(table(True, parts), ids), x, tf.train.AdamOptimizer(0.1))
    )


def test_unique_of_no_rows_has_none():
    """Regression: it had one value, of a row that was not there, and RMSProp updated that row, silently."""

    def build(ids, x):
        mine = tf.boolean_mask(ids, tf.equal(ids, 7))  # of the last batch, none
        rows = tf.gather(table(True, 1), mine)
        loss = tf.reduce_sum(tf.matmul(rows, rows, transpose_a=True))
        train = tf.train.RMSPropOptimizer(0.1).minimize(loss)
        different = tf.unique(tf.cast(mine, tf.float32))[0]
        return [tf.size(different), tf.reduce_sum(different), train]

    assert_as_in_a_session(build)


PLACES = {
    "fetched": lambda places, x: places,
    "copied and fetched": lambda places, x: tf.identity(places),
    "sums of a known number": lambda places, x: tf.math.unsorted_segment_sum(x, places, 4),
    "most": lambda places, x: tf.reduce_max(places),
    "compared": lambda places, x: tf.cast(tf.equal(places, 1), tf.float32),
}


@pytest.mark.parametrize("use", PLACES)
def test_places_in_unique_ids_are_counted_from_the_first(use):
    """Regression: where nobody took the ids themselves, places had the gaps of another numbering, silently."""

    def build(ids, x):
        return [PLACES[use](tf.unique(tf.minimum(ids, 3))[1], x)]

    assert_as_in_a_session(build)


def test_unique_of_how_often_values_occur():
    """Regression: it had places of 6 rows, however many values there were."""

    def build(ids, x):
        times = tf.unique_with_counts(ids)[2]
        places = tf.unique(times * 2)[1]
        return [tf.gather(tf.cast(times, tf.float32), places), tf.reduce_mean(tf.gather(x, places), 0)]

    assert_as_in_a_session(build)


@pytest.mark.parametrize("some", [lambda x, n: x[:n], lambda x, n: x[n:]], ids=["first", "last"])
def test_each_length_that_is_fed_is_looked_at(some):
    """Regression: only the first call's was; a single row gave results of other shapes, with what lay in memory."""
    with tf.Graph().as_default() as graph:
        x, n = tf.placeholder(tf.float32, [6, 3], "x"), tf.placeholder(tf.int32, [], "n")
        rows = some(x, n)
        fetches = [tf.reduce_sum(tf.reduce_sum(rows, 1, keepdims=True) * rows * tf.reduce_max(rows, 0), 0)]
    step, numbers = npu_shim.compile_step(graph, fetches, [x, n]), np.random.RandomState(1)
    with tf.Session(graph=graph) as session:
        for length in (3, 5, 1, 4, 2):
            batch = {"x:0": numbers.randint(1, 9, (6, 3)), "n:0": length}
            np.testing.assert_allclose(step(batch)[0], session.run(fetches[0], batch), 1e-4)


def test_each_batch_that_xla_makes_a_length_of_is_looked_at():
    """Regression: only the first one was. XLA computes the length from the batch when it compiles, for each batch."""
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [6, 3], "x")
        rows = x[tf.reduce_sum(tf.cast(x[:, 0] > 4.0, tf.int32)) :]
        fetches = [tf.reduce_sum(tf.reduce_sum(rows, 1, keepdims=True) * rows * tf.reduce_max(rows, 0), 0)]
    step = npu_shim.compile_step(graph, fetches, [x])
    batch = np.array([[6, 1, 2], [5, 2, 3], [1, 3, 4], [2, 2, 1], [7, 3, 1], [1, 2, 5]])
    with tf.Session(graph=graph) as session:
        np.testing.assert_allclose(step({x: batch})[0], session.run(fetches[0], {x: batch}), 1e-4)
    with pytest.raises(PlanError, match="gives one row or none"):
        step({x: batch * [[1], [1], [8], [8], [1], [1]]})


def test_rows_of_partitions_go_back_to_their_places():
    def build(ids, x):
        places = tf.dynamic_partition(tf.range(6), ids % 2, 2)
        even, odd = tf.dynamic_partition(x, ids % 2, 2)
        return [tf.dynamic_stitch(places, [even * 2.0, odd + 1.0])]

    assert_as_in_a_session(build)


def test_constant_partitions():
    def build(ids, x):
        places = tf.dynamic_partition(tf.range(6), [0, 0, 2, 2, 0, 0], 3)
        parts = tf.dynamic_partition(x, [0, 0, 2, 2, 0, 0], 3)
        scaled = [part * float(number) for number, part in enumerate(parts)]
        return [tf.dynamic_stitch(places, scaled) + tf.cast(ids[0], tf.float32)]

    assert_as_in_a_session(build)


SOUND = {
    "sum": tf.reduce_sum,
    "mean": lambda a: tf.reduce_mean(a, 0),
    "moments": lambda a: tf.stack(tf.nn.moments(a, [0])),
    "least": lambda a: tf.reduce_min(a, 0),
    "place of the most": lambda a: tf.argmax(a, 0),
    "sorted": lambda a: tf.sort(a[:, 0], direction="DESCENDING")[0],
    "product": lambda a: tf.matmul(a, a, transpose_a=True),
    "per row": lambda a: tf.reduce_sum(tf.nn.log_softmax(a)),
    "concat": lambda a: tf.concat([a, tf.ones([1, 3]), a], 0),
    "last": lambda a: a[tf.shape(a)[0] - 1],
    "all but ends": lambda a: tf.reduce_sum(a[1:-1]),
    "last column": lambda a: tf.reduce_sum(a[:, -1]),
    "unique": lambda a: tf.unique(tf.cast(a[:, 0], tf.int32) % 3)[0],
    "places in unique": lambda a: tf.unique(tf.cast(a[:, 0], tf.int32) % 3)[1],
    "mask of a mask": lambda a: tf.reduce_sum(tf.boolean_mask(a, a[:, 0] > 3.0)),
    "scattered": lambda a: tf.scatter_nd(tf.cast(a[:, :1], tf.int32) % 4, a, [4, 3]),
    "in a function": lambda a: tf.function(lambda t: tf.reduce_sum(tf.nn.relu(t) * 2.0), autograph=False)(a),
    "gradient": lambda a: tf.gradients(tf.reduce_mean(tf.nn.l2_normalize(a, 0) * a), a)[0],
}
REFUSED = {
    "Cumsum": lambda a: tf.cumsum(a),
    "StridedSlice": lambda a: a[-1],
    "AvgPool": lambda a: tf.nn.avg_pool(tf.reshape(a, [1, -1, 3, 1]), [1, 2, 1, 1], [1, 1, 1, 1], "SAME"),
    "FusedBatchNormV3": lambda a: tf.stack(
        tf.nn.fused_batch_norm(tf.reshape(a, [-1, 1, 1, 3]), tf.ones([3]), tf.zeros([3]))[1:]
    ),
    "MatrixDiagPartV3": lambda a: tf.linalg.diag_part(tf.matmul(a, a, transpose_b=True)),
    "Slice": lambda a: tf.gradients(tf.concat([a, tf.ones([1, 3]), a], 0) ** 2, a)[0],
}


def masked(way):
    def build(ids, x):
        rows = tf.boolean_mask(x, tf.not_equal(ids, 3))
        rows.set_shape([None, 3])
        return [way(rows)]

    return build


def test_what_heeds_an_open_size():
    assert_as_in_a_session(lambda ids, x: [masked(way)(ids, x)[0] for way in SOUND.values()])


@pytest.mark.parametrize("op", REFUSED)
def test_what_does_not_is_refused(op):
    """Regression: these took rows that were not there, and gave a number."""
    said = r"\(%s\) takes a number of rows that depends on the data, from node 'boolean_mask/Where'"
    with pytest.raises(PlanError, match=said % op):
        assert_as_in_a_session(masked(REFUSED[op]))


def test_rows_that_xla_does_not_know_to_be_equally_many_are_named():
    """Regression: XLA's own words, in which no node of the user's is named."""
    with tf.Graph().as_default() as graph:
        ids, y = tf.placeholder(tf.int32, [5], "ids"), tf.placeholder(tf.float32, [5, 3], "y")
        places, parts = (tf.dynamic_partition(rows, ids % 2, 2) for rows in (tf.range(5), y))
        stitched = tf.dynamic_stitch(places, [parts[0] * 2.0, parts[1] * parts[1]])
        gradient = tf.gradients(tf.reduce_sum(stitched * stitched), y)[0]
    step = npu_shim.compile_step(graph, [gradient], [ids, y])
    feeds = {"ids:0": [0, 1, 1, 0, 1], "y:0": np.arange(15.0).reshape(5, 3) / 4.0}
    if tf.__version__.startswith("2.15"):
        with pytest.raises(PlanError, match=r"node 'DynamicPartition\S*' .* are equal; run the step"):
            step(feeds)
        return
    with tf.Session(graph=graph) as session:  # a newer XLA compiles it
        np.testing.assert_allclose(step(feeds)[0], session.run(gradient, feeds), rtol=1e-6)


# what takes a number of rows that the step computes
PARTS = {
    "top_k": lambda row, count: tf.nn.top_k(row, count).values,
    "slice": lambda row, count: row[:count],
    "tf.slice": lambda row, count: tf.slice(row, [0], tf.stack([count])),
    "rest": lambda row, count: row[count:],
}


def counted(row, w):
    """2 to 4, as the values say."""
    return tf.cast(tf.reduce_sum(tf.cast(row > 4.0, tf.float32)) + 0.0 * tf.reduce_sum(w), tf.int32) % 3 + 2


@pytest.mark.parametrize("name", ["slice", "tf.slice", "rest"])
def test_parts_of_a_computed_size_are_summed_as_in_a_session(name):
    def build(ids, x):
        w = table(True, parts=1)
        row = x[:, 0] * w[0, 1]
        part = PARTS[name](row, counted(x[:, 0], w))
        return [tf.reduce_sum(part), tf.train.GradientDescentOptimizer(0.01).minimize(tf.reduce_mean(part**2))]

    assert_as_in_a_session(build)


@pytest.mark.parametrize("name", PARTS)
def test_the_last_row_of_a_part_of_a_computed_size_is_refused(name):
    """Regression: x[-1] was a row of the padding, silently, as in the hard negatives of an SSD."""
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [6, 3], "x")
        row = x[:, 0] * table(True, parts=1)[0, 1]
        last = PARTS[name](row, counted(x[:, 0], row))[-1]
    with pytest.raises(PlanError, match=r"takes a number of rows that depends on the data.*counts from the end"):
        step_function.build(graph, [last], [x])


SLICES = {
    "from 2 on": lambda rows: rows[2:],
    "from 2 to 4": lambda rows: rows[2:4],
    "but the last": lambda rows: rows[:-1],
    "of a slice": lambda rows: rows[:3][1:],
    "from as many on": lambda rows: rows[tf.shape(rows)[0] + 1 :],
    "columns too": lambda rows: rows[2:, 1:],
}


@pytest.mark.parametrize("name", SLICES)
def test_a_slice_that_leaves_out_more_rows_than_there_are_is_empty(name):
    """Regression: it had a negative number of rows, so a mean that counts them had another sign."""
    with tf.Graph().as_default() as graph:
        x, limit = tf.placeholder(tf.float32, [6, 3], "x"), tf.placeholder(tf.float32, [], "limit")
        w = tf.get_variable("w", initializer=np.float32(np.eye(3) + 0.5), use_resource=True)
        rows = tf.matmul(x, w)
        part = SLICES[name](tf.boolean_mask(rows, x[:, 0] < limit))
        loss = tf.reduce_sum(tf.square(part)) + tf.reduce_sum(w**2)
        loss = loss / (tf.cast(tf.shape(part)[0], tf.float32) + 0.5)
        fetches = [loss, tf.shape(part)[0], tf.gradients(loss, w)[0]]
        init = tf.global_variables_initializer()
    given = np.arange(18, dtype=np.float32).reshape(6, 3)
    with tf.Session(graph=graph) as session:
        session.run(init)
        step = npu_shim.compile_step(session, fetches, [x, limit])
        for count in range(5):
            feeds = {"x:0": given, "limit:0": given[count, 0]}
            for actual, wanted in zip(step(feeds), session.run(fetches, feeds)):
                np.testing.assert_allclose(actual, wanted, rtol=1e-5)


CUT_SHORT = {
    "a factor below 0": lambda count: tf.range(8 + count * -1),
    "a product of differences": lambda count: tf.range((count - 4) * (count - 4)),
    "a falling range": lambda count: tf.range(6, count, -1),
    "a computed start": lambda count: tf.range(count, 7),
    "rows of zeros": lambda count: tf.zeros([8 + count * -1]),
    "copies of two": lambda count: tf.tile([1, 2], [6 - count]),
}


@pytest.mark.parametrize("name", CUT_SHORT)
def test_a_size_that_xla_would_cut_short_is_refused(name):
    """Regression: there were fewer elements than in a session, silently."""
    with tf.Graph().as_default() as graph:
        mask = tf.placeholder(tf.bool, [6], "mask")
        result = tf.reduce_sum(CUT_SHORT[name](tf.shape(tf.boolean_mask(tf.range(6), mask))[0]))
        with pytest.raises(PlanError, match=r"takes a size from node '.*' that depends on a number of rows"):
            step_function.build(graph, [result], [mask])


COUNTED = {
    "a limit": lambda count: tf.range(count),
    "a difference": lambda count: tf.range(1, 8 - count, 2),
    "a product": lambda count: tf.zeros([count * 2, count]),
    "of the last axis": lambda count: tf.range(tf.stack([7, count])[-1] * 2),
    "copies of one": lambda count: tf.tile([1], [6 - count]),
}


@pytest.mark.parametrize("name", COUNTED)
def test_a_size_that_is_computed_of_a_number_of_rows(name):
    def build(ids, x):
        counted = COUNTED[name](tf.shape(tf.boolean_mask(ids, tf.not_equal(ids, 3)))[0])
        return [tf.reduce_sum(counted), tf.shape(counted)]

    assert_as_in_a_session(build)


@pytest.mark.parametrize(
    "part",
    [lambda x, n: x[:n, 1:], lambda x, n: x[n:, 1:], lambda x, n: x[2:4, :n], lambda x, n: x[n:, None, 1 : n + 1]],
    ids=["columns", "both begin", "rows", "both are open"],
)
def test_a_computed_slice_that_begins_behind_0_in_another_axis_is_refused(part):
    """Regression: the other axis began at 0, silently."""
    with tf.Graph().as_default() as graph:
        x, mask = tf.placeholder(tf.float32, [6, 3], "x"), tf.placeholder(tf.bool, [6], "mask")
        result = tf.reduce_sum(part(x, tf.shape(tf.boolean_mask(x, mask))[0]))
        with pytest.raises(PlanError, match="begins behind 0 in another axis: compiled by XLA it begins at 0"):
            step_function.build(graph, [result], [x, mask])


@pytest.mark.parametrize(
    "part",
    [lambda x, n: x[:n:2], lambda x, n: x[n::2], lambda x, n: x[n::-1], lambda x, n: x[:n, ::2]],
    ids=["end", "begin", "backwards", "another axis"],
)
def test_a_computed_slice_with_a_stride_is_refused(part):
    """Regression: x[:n:2] had the rows of x[:n], or one too many, silently."""
    with tf.Graph().as_default() as graph:
        x, n = tf.placeholder(tf.float32, [6, 4], "x"), tf.placeholder(tf.int32, [], "n")
        some = part(x, n)
        with pytest.raises(PlanError, match="has computed ends and a stride other than 1"):
            step_function.build(graph, [tf.reduce_sum(some), tf.shape(some)], [x, n])


def test_a_computed_slice_that_begins_at_0_in_another_axis():
    def build(ids, x):
        n = tf.shape(tf.boolean_mask(ids, tf.not_equal(ids, 3)))[0]
        parts = x[:n, :2], x[1:n, 1], x[n - 1 :, None, :], x[2, 1:n]
        return [tf.reduce_sum(part) for part in parts] + [tf.shape(part) for part in parts]

    assert_as_in_a_session(build)


def masked_step(change, rows=6):
    """A step of rows that a mask chooses, with a variable whose gradient has a part without them: (session, step)."""
    x, mask = tf.placeholder(tf.float32, [rows, 3], "x"), tf.placeholder(tf.bool, [rows], "mask")
    w = tf.get_variable("w", initializer=tf.constant(np.random.RandomState(0).randn(3, 3).astype(np.float32)))
    y = tf.matmul(change(tf.boolean_mask(tf.matmul(x, w), mask)), w)
    loss = tf.reduce_sum(tf.square(y)) + tf.reduce_sum(tf.tanh(w))
    session = tf.Session()
    session.run(tf.global_variables_initializer())
    return session, [loss, tf.gradients(loss, w)[0]], [x, mask]


@pytest.mark.parametrize(
    ("change", "rows", "node"),
    [
        (lambda y: tf.nn.softmax(y[:1]), 6, "strided_slice"),
        (lambda y: tf.tile(y[:2][1:], [2, 1]), 6, "strided_slice_1"),
        (tf.nn.softmax, 1, "boolean_mask/Where"),
    ],
    ids=["a slice", "a slice of a slice", "a mask of one row"],
)
def test_one_row_or_none_is_refused(change, rows, node):
    with tf.Graph().as_default():
        session, fetches, feeds = masked_step(change, rows)
        step = npu_shim.compile_step(session, fetches, feeds)
        ours = "node '%s' gives one row or none, which depends on the data" % node
        later = "cannot be compiled by XLA: .* broadcast"  # TensorFlow 2.21's XLA refuses it by itself
        with pytest.raises(PlanError, match="%s|%s" % (ours, later)):
            step({"x": np.zeros((rows, 3)), "mask": np.ones(rows, bool)})


def test_what_xla_cannot_reverse_is_refused():
    with tf.Graph().as_default():
        session, fetches, feeds = masked_step(lambda y: tf.reverse(y, [0]))
        step = npu_shim.compile_step(session, fetches, feeds)
        with pytest.raises(PlanError, match="node 'ReverseV2' reverses rows whose number depends on the data"):
            step({"x": np.zeros((6, 3)), "mask": np.ones(6, bool)})


def test_few_rows_of_several_have_the_gradients_of_a_session():
    with tf.Graph().as_default():
        session, fetches, feeds = masked_step(lambda y: tf.reverse(tf.nn.softmax(y[1:]), [1]))
        step = npu_shim.compile_step(session, fetches, feeds)
        for count in (6, 2, 1, 0):
            batch = {"x:0": np.random.RandomState(1).randn(6, 3), "mask:0": np.arange(6) < count}
            for actual, wanted in zip(step(batch), session.run(fetches, batch)):
                np.testing.assert_allclose(actual, wanted, 1e-4, 1e-5)
