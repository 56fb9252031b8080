"""Compiled steps with tensors whose number of rows is data, beside a session; many ways to use them are one step."""

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf
from compiled_steps import assert_as_in_a_session

import npu_shim

pytestmark = [*sessions.COMPILED, pytest.mark.usefixtures("control_flow_of_version_1")]


def compared(build, **more):
    """Holds some compiled steps against a session's; `build` takes ids and rows."""
    with tf.Graph().as_default() as graph:
        ids, x = tf.placeholder(tf.int32, [6], "ids"), tf.placeholder(tf.float32, [6, 3], "x")
        fetches = build(ids, x)
        init = tf.global_variables_initializer()
    numbers = np.random.RandomState(1)
    batches = [{ids: numbers.randint(0, 8, 6), x: numbers.randint(1, 9, (6, 3))} for _ in range(3)]
    batches.append({ids: [2, 2, 2, 4, 4, 0], x: numbers.randint(1, 9, (6, 3))})  # one partition has no rows
    return assert_as_in_a_session(graph, fetches, batches, init, **{"rtol": 1e-4, "atol": 1e-4, **more})


def table(name="table", use_resource=True, parts=1):
    start = tf.constant(np.arange(24, dtype=np.float32).reshape(8, 3))
    splits = tf.fixed_size_partitioner(parts) if parts > 1 else None
    return tf.get_variable(name, initializer=start, partitioner=splits, use_resource=use_resource)


def trained(rows, x, optimizer, scope):
    loss = tf.reduce_sum((rows - x) ** 2)
    variables = tf.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES, scope)
    return [rows * 1.0, optimizer.minimize(loss, var_list=variables)]


def test_lookups_of_partitions():
    """By given ids, and by computed ones: those were an error of XLA's, or the step before's numbers."""

    def build(ids, x):
        fetches = []
        for use_resource in (True, False):
            for strategy in ("mod", "div"):
                name = "%s%d" % (strategy, use_resource)
                rows = tf.nn.embedding_lookup(table(name, use_resource, 3), ids, partition_strategy=strategy)
                fetches += trained(rows, x, tf.train.GradientDescentOptimizer(0.1), name)
        kept = tf.get_variable("kept", initializer=tf.zeros([6], tf.int32), use_resource=True)
        chosen = (kept.assign(ids) + 1) % 8
        rows = tf.nn.embedding_lookup(table("computed", parts=3), chosen)
        return fetches + trained(rows, x, tf.train.GradientDescentOptimizer(0.1), "computed")

    step = compared(build)
    assert len(step._programs._opened.programs) == 1  # Regression: for each batch's ids the step was compiled again


PLACES = {
    "fetched": lambda places, x: places,
    "copied and fetched": lambda places, x: tf.identity(places),
    "sums of a known number": lambda places, x: tf.math.unsorted_segment_sum(x, places, 4),
    "most": lambda places, x: tf.reduce_max(places),
    "compared": lambda places, x: tf.cast(tf.equal(places, 1), tf.float32),
}


def test_unique_ids():
    """Regression: Adam's tf.unique took rows that were not there; of no rows it had one value, whose row RMSProp
    updated; places had the gaps of another numbering where nobody took the ids, and 6 rows however many there were."""

    def build(ids, x):
        fetches = []
        for parts in (1, 3):
            rows = tf.nn.embedding_lookup(table("adam%d" % parts, parts=parts), ids)
            fetches += trained(rows, x, tf.train.AdamOptimizer(0.1), "adam%d" % parts)
        mine = tf.boolean_mask(ids, tf.equal(ids, 7))  # of the last batch, none
        rms = table("rms")
        rows = tf.gather(rms, mine)
        loss = tf.reduce_sum(tf.matmul(rows, rows, transpose_a=True))
        different = tf.unique(tf.cast(mine, tf.float32))[0]
        fetches += [tf.size(different), tf.reduce_sum(different)]
        fetches.append(tf.train.RMSPropOptimizer(0.1).minimize(loss, var_list=[rms]))
        fetches += [use(tf.unique(tf.minimum(ids, 3))[1], x) for use in PLACES.values()]
        times = tf.unique_with_counts(ids)[2]
        places = tf.unique(times * 2)[1]
        return [*fetches, tf.gather(tf.cast(times, tf.float32), places), tf.reduce_mean(tf.gather(x, places), 0)]

    compared(build)


def test_rows_of_partitions_go_back_to_their_places():
    def build(ids, x):
        places = tf.dynamic_partition(tf.range(6), ids % 2, 2)
        even, odd = tf.dynamic_partition(x, ids % 2, 2)
        stitched = tf.dynamic_stitch(places, [even * 2.0, odd * odd])
        known = tf.dynamic_partition(tf.range(6), [0, 0, 2, 2, 0, 0], 3)
        scaled = [part * float(n) for n, part in enumerate(tf.dynamic_partition(x, [0, 0, 2, 2, 0, 0], 3))]
        constant = tf.dynamic_stitch(known, scaled) + tf.cast(ids[0], tf.float32)
        return [stitched, tf.gradients(tf.reduce_sum(stitched * stitched), x)[0], constant]

    compared(build)


USES = {
    "sum": tf.reduce_sum,
    "mean": lambda a: tf.reduce_mean(a, 0),
    "moments": lambda a: tf.stack(tf.nn.moments(a, [0])),
    "least": lambda a: tf.reduce_min(a, 0),
    "place of the most": lambda a: tf.argmax(a, 0),
    "sorted": lambda a: tf.sort(a[:, 0], direction="DESCENDING")[0],
    "product": lambda a: tf.matmul(a, a, transpose_a=True),
    "per row": lambda a: tf.reduce_sum(tf.nn.log_softmax(a)),
    "concat": lambda a: tf.concat([a, tf.ones([1, 3]), a], 0),
    "gradient of a concat": lambda a: tf.gradients(tf.concat([a, tf.ones([1, 3]), a], 0) ** 2, a)[0],
    "cumulative": tf.cumsum,
    "last": lambda a: a[tf.shape(a)[0] - 1],
    "last, from the end": lambda a: a[-1],
    "all but ends": lambda a: tf.reduce_sum(a[1:-1]),
    "last column": lambda a: tf.reduce_sum(a[:, -1]),
    "unique": lambda a: tf.unique(tf.cast(a[:, 0], tf.int32) % 3)[0],
    "places in unique": lambda a: tf.unique(tf.cast(a[:, 0], tf.int32) % 3)[1],
    "mask of a mask": lambda a: tf.reduce_sum(tf.boolean_mask(a, a[:, 0] > 3.0)),
    "in a function": lambda a: tf.function(lambda t: tf.reduce_sum(tf.nn.relu(t) * 2.0), autograph=False)(a),
    "gradient": lambda a: tf.gradients(tf.reduce_mean(tf.nn.l2_normalize(a, 0) * a), a)[0],
    "reversed": lambda a: tf.reverse(a, [0]),
    "scattered": lambda a: tf.scatter_nd(tf.cast(a[:, :1], tf.int32) % 4, a, [4, 3]),
}
SIZES = {
    "a limit": tf.range,
    "a difference": lambda count: tf.range(1, 8 - count, 2),
    "of the last axis": lambda count: tf.range(tf.stack([7, count])[-1] * 2),
    "copies of one": lambda count: tf.tile([1], [6 - count]),
    "a factor below 0": lambda count: tf.range(8 + count * -1),
    "a product of differences": lambda count: tf.range((count - 4) * (count - 4)),
    "a falling range": lambda count: tf.range(6, count, -1),
    "a computed start": lambda count: tf.range(count, 7),
    "rows of zeros": lambda count: tf.zeros([8 + count * -1]),
    "copies of two": lambda count: tf.tile([1, 2], [6 - count]),
    "quotient": lambda count: tf.ones([12 // (count + 1), 3]),
    "least": lambda count: tf.ones([tf.minimum(count, 3)]),
}
SLICES = {
    "columns": lambda x, n: x[:n, 1:],
    "both begin": lambda x, n: x[n:, 1:],
    "every second": lambda x, n: x[:n:2],
    "every second, from": lambda x, n: x[n::2],
    "backwards": lambda x, n: x[n::-1],
    "another axis": lambda x, n: x[:n, ::2],
    "between": lambda x, n: x[1:n, 1],
    "of a row": lambda x, n: x[2, 1:n],
    "a new axis": lambda x, n: x[n - 1 :, None, :],
}


def test_what_takes_rows_and_sizes_that_data_count():
    """Regression: much of it took rows that were not there, or had too few, silently."""

    def build(ids, x):
        rows = tf.boolean_mask(x, tf.not_equal(ids, 3))
        rows.set_shape([None, 3])
        count = tf.shape(tf.boolean_mask(ids, tf.not_equal(ids, 3)))[0]
        parts = [size(count) for size in SIZES.values()] + [part(x, count) for part in SLICES.values()]
        parts += [tf.sparse_to_dense(tf.where(tf.not_equal(ids, 3)), [6], values, 7.0) for values in (rows[:, 0], 5.0)]
        return [*(use(rows) for use in USES.values()), *parts, *map(tf.shape, parts)]

    compared(build)


# what takes a number of rows that the step computes
PARTS = {
    "slice": lambda row, count: row[:count],
    "tf.slice": lambda row, count: tf.slice(row, [0], tf.stack([count])),
    "rest": lambda row, count: row[count:],
}


def test_parts_of_a_computed_size_and_their_last_rows():
    """Regression: x[-1] was a row of the padding, silently, as in the hard negatives of an SSD."""

    def build(ids, x):
        fetches = []
        for name, way in PARTS.items():
            w = table("table_" + name.replace(".", "_"))
            row = x[:, 0] * w[0, 1]
            total = tf.cast(tf.reduce_sum(tf.cast(row > 4.0, tf.float32)) + 0.0 * tf.reduce_sum(w), tf.int32)
            part = way(row, total % 3 + 2)
            loss = tf.reduce_mean(part**2)
            fetches += [tf.reduce_sum(part), part[-1]]
            fetches.append(tf.train.GradientDescentOptimizer(0.01).minimize(loss, var_list=[w]))
        return fetches

    compared(build)


EMPTY = {
    "from 2 on": lambda rows: rows[2:],
    "from 2 to 4": lambda rows: rows[2:4],
    "but the last": lambda rows: rows[:-1],
    "of a slice": lambda rows: rows[:3][1:],
    "from as many on": lambda rows: rows[tf.shape(rows)[0] + 1 :],
    "columns too": lambda rows: rows[2:, 1:],
    "one row or none": lambda rows: tf.nn.softmax(rows[:1]),
    "few, and reversed": lambda rows: tf.reverse(tf.nn.softmax(rows[1:]), [0, 1]),
    "rows by their places": lambda rows: tf.gather(rows, tf.where(rows[:, :2] - 1.0)[:, 0]),
    "high columns": lambda rows: rows * tf.reduce_sum(tf.cast(tf.where(tf.reduce_max(rows, 0) > 1.5), tf.float32)),
}


def test_slices_that_leave_out_more_rows_than_there_are_and_their_gradients():
    """Regression: one had a negative number of rows, so a mean that counts them had another sign."""
    with tf.Graph().as_default() as graph:
        x, limit = tf.placeholder(tf.float32, [6, 3], "x"), tf.placeholder(tf.float32, [], "limit")
        w = tf.get_variable("w", initializer=np.float32(np.eye(3) + 0.5), use_resource=True)
        rows, fetches = tf.boolean_mask(tf.matmul(x, w), x[:, 0] < limit), []
        for way in EMPTY.values():
            part = way(rows)
            loss = tf.reduce_sum(tf.square(part)) + tf.reduce_sum(w**2)
            loss = loss / (tf.cast(tf.shape(part)[0], tf.float32) + 0.5)
            fetches += [loss, tf.shape(part)[0], tf.gradients(loss, w)[0]]
        alone = tf.boolean_mask(tf.matmul(x, w)[:1], x[:1, 0] < limit)  # a mask of one row
        fetches.append(tf.gradients(tf.reduce_sum(tf.square(tf.nn.softmax(alone))), w)[0])
        init = tf.global_variables_initializer()
    given = np.arange(18, dtype=np.float32).reshape(6, 3) / 8
    batches = [{x: given, limit: given[count, 0]} for count in range(1, 6)]
    assert_as_in_a_session(graph, fetches, batches, init, 1e-4, 1e-5)


def test_lengths_that_are_fed():
    """Regression: only the first call's was looked at; a single row gave what lay in memory."""
    with tf.Graph().as_default() as graph:
        x, n = tf.placeholder(tf.float32, [6, 3], "x"), tf.placeholder(tf.int32, [], "n")
        computed = tf.reduce_sum(tf.cast(x[:, 0] > 4.0, tf.int32))
        fetches = [
            tf.reduce_sum(tf.reduce_sum(rows, 1, keepdims=True) * rows * tf.reduce_max(rows, 0), 0)
            for rows in (x[:n], x[n:], x[computed:])
        ]
    numbers = np.random.RandomState(1)
    assert_as_in_a_session(
        graph, fetches, [{x: numbers.randint(1, 9, (6, 3)), n: k} for k in (3, 5, 1, 4, 2)], rtol=1e-4
    )


def split_and_joined(rows, mask, x):
    first, second, third = tf.split(rows, 3, 1)
    return first * tf.unstack(rows, axis=1)[2][:, None] + tf.split(third * second, [1], 1)[0]


# rows by a mask of six, and what their gradients go through
MASKED = {
    "softmax of all": lambda rows, mask, x: tf.nn.softmax(rows[:, 0]) - tf.nn.log_softmax(rows[:, 1]),
    "softmax of columns": lambda rows, mask, x: tf.nn.softmax(rows, axis=0),
    "pooled by attention": lambda rows, mask, x: tf.reduce_sum(
        tf.nn.softmax(tf.reduce_sum(rows, 1, keepdims=True), axis=0) * rows, 0),
    "attention": lambda rows, mask, x: tf.matmul(tf.nn.softmax(tf.matmul(x, rows, transpose_b=True)), rows),
    "attention, transposed": lambda rows, mask, x: tf.matmul(
        rows, tf.nn.log_softmax(tf.matmul(x, tf.transpose(rows))), transpose_a=True, transpose_b=True),
    "columns": lambda rows, mask, x: tf.reduce_sum(tf.transpose(rows) * x[:3, :1], 1),
    "two by one mask": lambda rows, mask, x: tf.nn.sigmoid_cross_entropy_with_logits(
        logits=rows, labels=tf.boolean_mask(x, mask)),
    "elements by one mask": lambda rows, mask, x: (
        lambda large: tf.boolean_mask(x * x, large) * tf.boolean_mask(x, large))(x > 4.0),
    "classes": lambda rows, mask, x: tf.nn.sparse_softmax_cross_entropy_with_logits(
        logits=rows, labels=tf.boolean_mask(tf.argmax(x, 1), mask)),
    "padded": lambda rows, mask, x: tf.pad(rows, [[0, 8 - tf.shape(rows)[0]], [0, 1]]),
    "padded at least": lambda rows, mask, x: tf.pad(
        rows[:, 0], [[1, tf.maximum(7 - tf.shape(rows)[0], 0)]], constant_values=3.0),
    "slices": lambda rows, mask, x: tf.slice(x, [1, 0], [tf.minimum(tf.shape(rows)[0], 5), 2]),
    "with each of six": lambda rows, mask, x: tf.reduce_sum(rows[:, None] - x[None], 2),
    "parts": split_and_joined,
}  # fmt: skip


BY_DAY = [
    "softmax of columns", "attention, transposed", "two by one mask", "classes", "padded", "slices", "with each of six",
    "parts",
]  # fmt: skip
BY_NIGHT = [name for name in MASKED if name not in BY_DAY]


@pytest.mark.parametrize("names", [BY_DAY, pytest.param(BY_NIGHT, marks=pytest.mark.nightly)], ids=["day", "night"])
def test_what_a_mask_leaves_is_normalized_padded_and_trained(names):
    """Values and gradients, of no rows too."""

    def build(ids, x):
        w, fetches = table(), []
        mask = tf.not_equal(ids, 2) & tf.not_equal(ids, 0) & tf.not_equal(ids, 4)
        scaled = x * (w[1:7] * 0.02 + 0.1)
        rows = tf.boolean_mask(scaled, mask)
        rows.set_shape([None, 3])
        for name in names:
            result = MASKED[name](rows, mask, scaled)
            fetches += [tf.shape(result), tf.reduce_sum(result**2)]
        return [*fetches, tf.gradients(tf.add_n(fetches[1::2]), w)[0]]

    step = compared(build)
    assert len(step._programs._opened.programs) == 1  # else the feeds' own values were taken for known


REFUSED = {
    "AvgPool": lambda a: tf.nn.avg_pool(tf.reshape(a, [1, -1, 3, 1]), [1, 2, 1, 1], [1, 1, 1, 1], "SAME"),
    "FusedBatchNormV3": lambda a: tf.stack(
        tf.nn.fused_batch_norm(tf.reshape(a, [-1, 1, 1, 3]), tf.ones([3]), tf.zeros([3]))[1:]
    ),
    "MatMul": lambda a: tf.linalg.diag_part(tf.matmul(a, a, transpose_b=True)),
    "Fill": lambda a: tf.fill([2, tf.shape(a)[0]], 1.0),
}


@pytest.mark.parametrize("op", REFUSED)
def test_what_takes_no_rows_that_data_count_is_named(op):
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [6, 3], "x")
        rows = tf.boolean_mask(x, x[:, 0] > 3.0)
        rows.set_shape([None, 3])
        fetch = REFUSED[op](rows)
    with pytest.raises(npu_shim.PlanError, match=r"node '\S+' \(%s\): .* data.*; run the step in a" % op):
        npu_shim.compile_step(graph, fetch, [x])({x: np.ones([6, 3])})


def best(x):
    return tf.nn.top_k(x, 9)[0]


def weighted(x):
    return best(x * tf.get_variable("w", initializer=np.full(12, 1.5, np.float32)))


def in_a_branch(x):
    chosen = tf.cond(x[0] < 9, lambda: best(x), lambda: best(x) + 1)
    return tf.boolean_mask(chosen, chosen > 0.5)


def masked_in_a_branch(x):
    return tf.cond(x[0] < 9, lambda: tf.reduce_sum(tf.boolean_mask(best(x), best(x) > 0.5)), lambda: tf.reduce_sum(x))


OF_SORTED = {
    "mask": lambda x: tf.boolean_mask(best(x), best(x) > 0.5),
    "mask of places": lambda x: tf.boolean_mask(x[:9], tf.nn.top_k(x, 9)[1] < 5),
    "sorted": lambda x: tf.where(tf.sort(x) < 0),
    "ranks": lambda x: tf.boolean_mask(x, tf.argsort(tf.argsort(x)) < 5),
    "rows": lambda x: tf.where(tf.sort(tf.reshape(x, [3, 4])) < 0),
    "integers": lambda x: tf.where(tf.sort(tf.cast(x * 9, tf.int32)) > 3),
    "weight": lambda x: tf.boolean_mask(weighted(x), best(x) > 0.5),
    "branch": in_a_branch,
    "mask in a branch": masked_in_a_branch,
}


@pytest.mark.parametrize("version", [1, 2])
def test_sizes_of_sorted_values_are_those_of_the_data(version):
    """Was silent: a mask had no rows, and a range as many as there may be."""
    with sessions.control_flow(version), tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [12], "x")
        fetches = [use(x) for use in OF_SORTED.values()]
        init = tf.global_variables_initializer()
    batches = [{x: np.random.RandomState(seed).randn(12).astype(np.float32)} for seed in range(3)]
    assert_as_in_a_session(graph, fetches, batches, init)


def test_equal_ids_of_distinct_values_are_no_distinct_ids():
    """Was silent: of two gradients for one row, the optimizer's slots saw one."""
    with tf.Graph().as_default() as graph:
        x, wide = tf.placeholder(tf.float32, [4], "x"), tf.placeholder(tf.int64, [4], "wide")
        ids, fetches = tf.placeholder(tf.int32, [4], "ids"), []
        looked_up = {
            "unique_of_floats": tf.cast(tf.unique(x)[0], tf.int32), "narrower": tf.cast(tf.unique(wide)[0], tf.int32),
            "wider": tf.cast(tf.unique(ids)[0], tf.int64),
        }  # fmt: skip
        for name, chosen in looked_up.items():
            variable = tf.get_variable(name, initializer=np.full((5, 1), 0.5, np.float32))
            loss = tf.reduce_sum(tf.nn.embedding_lookup(variable, chosen))
            fetches.append(tf.train.MomentumOptimizer(0.1, 0.9).minimize(loss, var_list=[variable]))
        init = tf.global_variables_initializer()
    batch = {x: [1.2, 1.7, 3, 1.2], wide: [1, 2**32 + 1, 3, 1], ids: [1, 3, 1, 2]}
    assert_as_in_a_session(graph, fetches, [batch] * 2, init)
