import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

import npu_shim
from npu_shim import float32_variable_storage_getter as ours


def published(
    getter, name, shape=None, dtype=None, initializer=None, regularizer=None, trainable=True, *args, **kwargs
):
    """The getter of the mixed-precision guides, in our own words: what ours is measured against."""
    stored = tf.float32 if trainable else dtype
    variable = getter(
        name,
        shape,
        *args,
        dtype=stored,
        initializer=initializer,
        regularizer=regularizer,
        trainable=trainable,
        **kwargs,
    )
    return tf.cast(variable, dtype) if trainable and dtype != tf.float32 else variable


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


@pytest.fixture(params=[False, True], ids=["reference", "resource"])
def resource(request):
    return request.param


@pytest.fixture(params=[False, True], ids=["switches", "functions"])
def control_flow(request):
    """Both control flows of TensorFlow: v1's Switch and Enter, v2's If and While."""
    with sessions.control_flow(2 if request.param else 1):
        yield request.param


def get(getter, *args, **kwargs):
    with tf.variable_scope("net", reuse=tf.AUTO_REUSE, custom_getter=getter):
        return tf.get_variable(*args, **kwargs)


def stored(name):
    (variable,) = [v for v in tf.global_variables() if v.op.name == name]
    return variable


def run(fetches, feeds=None):
    with sessions.started() as session:
        return session.run(fetches, feeds)


def casts():
    return [op for op in tf.get_default_graph().get_operations() if op.type == "Cast"]


# The edge cases that were seen with the published getter: its fault first, then ours without it.


def test_an_integer_beyond_float32_survives():
    big = np.array([2**24 + 1], np.int64)
    wrong, right = get(published, "a", dtype=tf.int64, initializer=big), get(ours, "b", dtype=tf.int64, initializer=big)
    assert stored("net/b").dtype.base_dtype == tf.int64
    assert right is stored("net/b")
    assert get(published, "i", [1], tf.int64).op.type == "Cast"
    assert run([wrong, right])[1] == big


@pytest.mark.parametrize("dtype", [tf.float64, tf.int32, tf.bool, tf.uint8])
def test_other_dtypes_are_left_alone(dtype):
    zeros = tf.zeros_initializer()
    get(published, "theirs", [2], dtype, zeros)
    mine = get(ours, "mine", [2], dtype, zeros)
    assert stored("net/theirs").dtype.base_dtype == tf.float32
    assert mine is stored("net/mine")
    assert mine.dtype.base_dtype == dtype


def test_float32_is_the_variable_itself():
    assert get(ours, "w", [2]) is stored("net/w")
    assert casts() == []


@pytest.mark.parametrize("dtype", [None, tf.float16])
@pytest.mark.parametrize(
    "make", [lambda v: v, lambda v: tf.constant(v), lambda v: lambda: tf.constant(v)], ids=["array", "tensor", "call"]
)
def test_a_low_precision_value_initializer_has_a_master(dtype, make):
    """Of a function that says nothing of its dtype before it is called, the variable stayed float16."""
    value = np.array([1.5, 2.5], np.float16)
    get(published, "theirs", dtype=dtype, initializer=make(value))
    assert stored("net/theirs").dtype.base_dtype == tf.float16
    mine = get(ours, "mine", dtype=dtype, initializer=make(value))
    assert stored("net/mine").dtype.base_dtype == tf.float32
    assert mine.dtype == tf.float16
    assert run(mine).tolist() == [1.5, 2.5]
    assert get(ours, "mine", dtype=dtype, initializer=make(value)) is mine


def test_reuse_makes_one_named_cast():
    assert get(published, "a", [2], tf.float16) is not get(published, "a", [2], tf.float16)
    before = len(casts())
    first = get(ours, "w", [2], tf.float16)
    assert get(ours, "w", [2], tf.float16) is first
    assert len(casts()) == before + 1
    assert first.op.name == "net/w/float16_cast"


def test_two_dtypes_are_two_casts_of_one_variable():
    half, brain = get(ours, "w", [2], tf.float16), get(ours, "w", [2], tf.bfloat16)
    assert (half.op.name, brain.op.name) == ("net/w/float16_cast", "net/w/bfloat16_cast")
    assert npu_shim.master_of(half) is npu_shim.master_of(brain)


def test_nested_getters_cast_once():
    with tf.variable_scope("outer", custom_getter=ours), tf.variable_scope("inner", custom_getter=ours):
        tf.get_variable("w", [2], tf.float16)
    assert len(casts()) == 1


def loop_of(getter):
    def body(i, x):
        return i + 1, tf.matmul(x, get(getter, "w", [2, 2], tf.float16, tf.ones_initializer()))

    return tf.while_loop(lambda i, x: i < 3, body, [0, tf.ones([1, 2], tf.float16)])[1]


def test_the_cast_of_a_weight_stands_outside_the_loop(resource, control_flow):
    tf.get_variable_scope().set_use_resource(resource)
    theirs = loop_of(published)
    assert not any(op._get_control_flow_context() is None for op in casts())
    with tf.Graph().as_default():
        tf.get_variable_scope().set_use_resource(resource)
        mine = loop_of(ours)
        assert [op._get_control_flow_context() for op in casts()] == [None]
        assert run(mine).tolist() == [[8, 8]]
    assert run(theirs).tolist() == [[8, 8]]


def test_dynamic_rnn_casts_each_weight_once(control_flow):
    with tf.variable_scope("rnn", custom_getter=ours):
        cell = tf.nn.rnn_cell.BasicRNNCell(3)
        tf.nn.dynamic_rnn(cell, tf.ones([2, 5, 3], tf.float16), dtype=tf.float16)
    assert sorted(op.name for op in casts()) == [
        v.op.name + "/float16_cast" for v in sorted(tf.trainable_variables(), key=lambda v: v.name)
    ]
    assert all(op._get_control_flow_context() is None for op in casts())


def test_gradients_flow_to_the_master_through_a_loop(resource, control_flow):
    tf.get_variable_scope().set_use_resource(resource)
    (gradient,) = tf.gradients(loop_of(ours), tf.trainable_variables())
    assert gradient.dtype == tf.float32
    assert run(gradient).tolist() == [[12, 12], [12, 12]]


def test_a_branch_has_its_own_cast(control_flow):
    outside = get(ours, "w", [2], tf.float16)
    inside = []

    def branch():
        inside.append(get(ours, "w", [2], tf.float16))
        return inside[0] + 1

    tf.cond(tf.constant(True), branch, lambda: tf.zeros([2], tf.float16))
    assert inside[0] is not outside
    assert npu_shim.master_of(inside[0]) is npu_shim.master_of(outside)
    assert len(npu_shim.master_weights_report()) == 1


def test_a_read_under_control_dependencies_is_not_shared():
    before = get(ours, "w", [1], tf.float16, tf.zeros_initializer(), use_resource=True)
    with tf.control_dependencies([before.assign([7.0])]):
        after = get(ours, "w", [1], tf.float16, use_resource=True)
    assert run(after).tolist() == [7]


def test_a_function_body_receives_the_cast():
    @tf.function
    def layer(x):
        return x * get(ours, "w", [2], tf.float16, tf.ones_initializer(), use_resource=True)

    out = layer(tf.constant([2, 3], tf.float16))
    assert run(out).tolist() == [2, 3]
    assert [op.name for op in casts()] == ["net/w/float16_cast"]


def table(getter, partitioner=None):
    return get(
        getter,
        "table",
        dtype=tf.float16,
        shape=[10, 4],
        partitioner=partitioner,
        initializer=tf.random_uniform_initializer(),
        use_resource=True,
    )


@pytest.mark.parametrize("parts", [None, 3])
def test_embedding_rows_are_gathered_before_they_are_cast(parts):
    low = table(ours, parts and tf.fixed_size_partitioner(parts))
    ids = tf.constant([[0, 9], [4, 4]])
    rows = npu_shim.embedding_lookup(low, ids)
    assert rows.dtype == tf.float16
    assert rows.op.type == "Cast"
    assert rows.shape.as_list() == [2, 2, 4]
    gradients = tf.gradients(rows, tf.trainable_variables())
    assert all(isinstance(g, tf.IndexedSlices) and g.dtype == tf.float32 for g in gradients)
    got, want = run([rows, tf.gather(low, ids)])
    assert np.array_equal(got, want)


def test_a_table_partitioned_along_columns_is_looked_up():
    low = table(ours, tf.fixed_size_partitioner(2, axis=1))
    got, want = run([npu_shim.embedding_lookup(low, [3, 1]), tf.gather(low, [3, 1])])
    assert np.array_equal(got, want)


def test_a_partitioned_master_keeps_its_parts():
    low = table(ours, tf.fixed_size_partitioner(3))
    assert len(list(npu_shim.master_of(low))) == 3
    assert low.op.name == "net/table/float16_cast"
    assert table(ours, tf.fixed_size_partitioner(3)) is low


@pytest.mark.parametrize("trainable", [True, False])
def test_assigning_to_the_cast_writes_the_master(resource, trainable):
    theirs = get(published, "a", [2], tf.float16, use_resource=resource)
    with pytest.raises((AttributeError, ValueError)):
        tf.assign(theirs, [1, 2])
    low = get(ours, "w", [2], tf.float16, tf.ones_initializer(), use_resource=resource, trainable=trainable)
    with sessions.started() as session:
        session.run(tf.assign(low, np.array([3, 4], np.float16)))
        session.run(tf.assign_sub(low, tf.constant([1, 1], tf.float16)))
        session.run(low.assign_add([0.0001, 0]))
        assert np.allclose(session.run(npu_shim.master_of(low)), np.float32([2.0001, 3]), rtol=0, atol=2**-22)
        low.load([5, 6], session)
        assert session.run(low).tolist() == [5, 6]
        session.run(low.initializer)
        assert session.run(low).tolist() == [1, 1]


def test_moving_averages_of_weights_use_the_master():
    low = get(ours, "w", [2], tf.float16)
    average = tf.train.ExponentialMovingAverage(0.9)
    average.apply(tf.trainable_variables())
    assert average.average(low) is average.average(npu_shim.master_of(low))
    assert average.average(low).dtype.base_dtype == tf.float32


def test_a_weight_can_be_fed_and_a_statistic_says_that_it_cannot(resource):
    weight = get(ours, "w", [2], tf.float16, tf.ones_initializer(), use_resource=resource)
    mean = get(ours, "mean", [2], tf.float16, tf.ones_initializer(), trainable=False, use_resource=resource)
    results = [weight * 2.0, mean * 2.0, weight]
    with sessions.started() as session:
        fed = session.run(results, {weight: [3, 4]})
        assert [value.tolist() for value in fed] == [[6, 8], [2, 2], [3, 4]]
        with pytest.raises(ValueError, match=r"mean/float16_cast.* may not be fed"):
            session.run(results, {mean: [3, 4]})


def test_statistics_do_not_lose_small_updates(resource):
    def after_updates(getter):
        with tf.Graph().as_default():
            mean = get(getter, "mean", [], tf.float16, tf.ones_initializer(), trainable=False, use_resource=resource)
            update = tf.assign_add(mean, tf.constant(2.0**-12, tf.float16))
            with sessions.started() as session:
                for _ in range(64):
                    session.run(update)
                return float(session.run(mean))

    assert after_updates(published) == 1
    assert after_updates(npu_shim.get_custom_getter(tf.float16, keep_float32_statistics=False)) == 1
    assert after_updates(ours) == 1 + 64 * 2.0**-12


def test_a_moving_average_updates_the_statistics_it_is_given(resource):
    from tensorflow.compat.v1.train import ExponentialMovingAverage  # noqa: F401  (what assign_moving_average belongs to)

    mean = get(ours, "mean", [2], tf.float16, tf.zeros_initializer(), trainable=False, use_resource=resource)
    decay = tf.constant(0.5, tf.float16)
    update = tf.assign_sub(mean, (mean - tf.constant([4, 8], tf.float16)) * decay)
    with sessions.started() as session:
        session.run(update)
        assert session.run(mean).tolist() == [2, 4]


def test_the_policy_decides_about_statistics():
    keep = get(ours, "a", [2], tf.float16, trainable=False)
    leave = get(npu_shim.get_custom_getter(tf.float16, False), "b", [2], tf.float16, trainable=False)
    assert npu_shim.master_of(keep).dtype.base_dtype == tf.float32
    assert leave is stored("net/b")
    assert leave.dtype.base_dtype == tf.float16
    assert tf.trainable_variables() == []


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64, tf.int32])
def test_there_is_no_getter_for_other_compute_dtypes(dtype):
    assert npu_shim.get_custom_getter(dtype) is None


def test_the_regularizer_sees_the_master():
    get(ours, "w", [2], tf.float16, tf.ones_initializer(), regularizer=lambda w: tf.reduce_sum(w * w))
    (penalty,) = tf.losses.get_regularization_losses()
    assert penalty.dtype == tf.float32
    assert run(penalty) == 2


def test_the_cast_follows_the_caching_device():
    assert get(published, "a", [2], tf.float16, caching_device="/cpu:0").device == ""
    assert get(ours, "w", [2], tf.float16, caching_device="/cpu:0").device == "/device:CPU:0"


def test_unknown_keywords_are_forwarded():
    seen = {}

    def true_getter(name, shape, **kwargs):
        seen.update(kwargs)
        return tf.Variable(tf.zeros(shape), name=name)

    ours(true_getter, "w", [2], tf.float16, shiny=7)
    assert seen["shiny"] == 7
    assert seen["dtype"] == tf.float32


def test_variables_that_no_getter_sees_need_the_scope():
    with tf.variable_scope("a", custom_getter=ours):
        missed = tf.Variable(np.float16([1, 2]), name="missed")
    assert missed.dtype.base_dtype == tf.float16
    with npu_shim.master_weights(tf.float16):
        value = tf.Variable(np.float16([1, 2]), name="value")
        call = tf.Variable(lambda: tf.constant([1, 2], tf.float16), dtype=tf.float16, name="call")
        whole = tf.Variable(3, name="whole")
        single = tf.Variable([1.0], name="single")
    assert [npu_shim.master_of(v).dtype.base_dtype for v in (value, call)] == [tf.float32] * 2
    assert (whole.dtype.base_dtype, single.dtype.base_dtype) == (tf.int32, tf.float32)
    assert run(value + call).tolist() == [2, 4]


def test_the_scope_covers_keras_layers_and_tf_layers():
    with npu_shim.master_weights(tf.float16):
        x = tf.keras.layers.Dense(3, dtype="float16")(tf.ones([2, 4], tf.float16))
        tf.keras.layers.BatchNormalization(dtype="float16")(x)
        legacy = getattr(tf, "layers", None)
        if legacy is not None:
            legacy.dense(x, 2)
            legacy.dense(x, 2)
    assert {v.dtype.base_dtype for v in tf.global_variables()} == {tf.float32}
    assert {r.reason for r in npu_shim.master_weights_report()} == {"stored as float32"}


def test_two_scopes_do_not_restart_the_names_of_layers():
    for _ in range(2):
        with npu_shim.master_weights():
            tf.layers.dense(tf.ones([2, 3], tf.float16), 2)
    assert [v.op.name for v in tf.trainable_variables()][::2] == ["dense/kernel", "dense_1/kernel"]


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
def test_the_scope_does_nothing_for_other_dtypes(dtype):
    with npu_shim.master_weights(dtype):
        assert tf.get_variable("w", [2], tf.float16).dtype.base_dtype == tf.float16


def test_the_scope_composes_with_a_getter_and_ends():
    def rename(getter, name, *args, **kwargs):
        return getter(name + "_renamed", *args, **kwargs)

    with tf.variable_scope("s", custom_getter=rename):
        with npu_shim.master_weights():
            inside = tf.get_variable("w", [2], tf.float16)
        after = tf.get_variable("x", [2], tf.float16)
    assert inside.op.name == "s/w_renamed/float16_cast"
    assert after.dtype.base_dtype == tf.float16
    assert tf.Variable(np.float16([1])).dtype.base_dtype == tf.float16


def test_the_variables_of_a_layer_lead_to_their_masters():
    layer = tf.layers.Dense(3, name="dense")
    with tf.variable_scope("net", custom_getter=ours):
        layer(tf.ones([2, 4], tf.float16))
    assert {npu_shim.master_of(v).name for v in layer.variables} == {v.name for v in tf.trainable_variables()}


def test_master_of_names_the_nearest_cast():
    low = get(ours, "weights", [2], tf.float16)
    assert npu_shim.master_of(npu_shim.master_of(low)) is npu_shim.master_of(low)
    other = tf.zeros([1], name="net/weight/float16_cast")
    with pytest.raises(npu_shim.ConfigError, match=r"did you mean 'net/weights/float16_cast:0'"):
        npu_shim.master_of(other)
    with pytest.raises(npu_shim.ConfigError, match=r"npu_shim: master_of expects a Tensor"):
        npu_shim.master_of(3)


def test_the_report_says_what_was_and_what_was_not_intercepted():
    get(ours, "w", [2], tf.float16)
    get(ours, "count", [], tf.int32, tf.zeros_initializer(), trainable=False)
    get(npu_shim.get_custom_getter(tf.bfloat16, False), "mean", [2], tf.bfloat16, trainable=False)
    tf.Variable(np.float16([1]), name="missed")
    assert [
        (r.name, r.requested, r.stored, r.trainable, r.reason.split(" (")[0]) for r in npu_shim.master_weights_report()
    ] == [
        ("missed", "float16", "float16", True, "made outside of the getter and of the master_weights scope"),
        ("net/mean", "bfloat16", "bfloat16", False, "not trainable, kept as requested"),
        ("net/w", "float16", "float32", True, "stored as float32"),
    ]


def test_executing_eagerly_is_refused():
    with tf.init_scope():
        if not tf.executing_eagerly():
            pytest.skip("this process builds graphs by default")
        with pytest.raises(npu_shim.ConfigError, match="need a graph"):
            ours(lambda name, shape, **_: tf.Variable(np.zeros(shape, np.float32)), "w", [2], tf.float16)


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16])
def test_training_updates_float32_masters(resource, dtype):
    rng = np.random.RandomState(0)
    x, y = rng.randn(32, 4).astype(np.float32), rng.randn(32, 1).astype(np.float32)
    with tf.variable_scope("net", custom_getter=npu_shim.get_custom_getter(dtype), use_resource=resource):
        w = tf.get_variable("w", [4, 1], dtype, tf.zeros_initializer())
    loss = tf.reduce_mean((tf.cast(tf.matmul(tf.cast(x, dtype), w), tf.float32) - y) ** 2)
    optimizer = tf.train.MomentumOptimizer(0.05, 0.9)
    gradients = optimizer.compute_gradients(loss)
    assert [g.dtype for g, _ in gradients] == [tf.float32]
    step = optimizer.apply_gradients(gradients)
    assert {v.dtype.base_dtype for v in tf.global_variables()} == {tf.float32}
    with sessions.started() as session:
        for _ in range(60):
            session.run(step)
        got = session.run(stored("net/w"))
    best = np.linalg.lstsq(x, y, rcond=None)[0]
    eps = {tf.float16: 2.0**-11, tf.bfloat16: 2.0**-8}[dtype]
    assert np.abs(got - best).max() < 4 * len(x) ** 0.5 * eps * np.abs(x).max()


def ordered(mean, one):
    """Reads of `mean` before, between and after writes that are ordered; in float16 whatever it is stored as."""
    before = tf.identity(mean)
    with tf.control_dependencies([before]):
        first = tf.assign_add(mean, one)
    with tf.control_dependencies([first]):
        between = mean + tf.zeros([], tf.float16)
        with tf.control_dependencies([between]):
            second = tf.assign(mean, [7, 8])
    with tf.control_dependencies([second]):
        after = tf.concat([mean, tf.identity(mean)], 0)
    return before, first, between, second, after


@pytest.mark.parametrize("getter", [ours, published])
def test_reads_of_statistics_are_ordered_after_writes(resource, control_flow, getter):
    if getter is published and not resource:
        pytest.skip("TensorFlow's own reads of a reference variable come when they come")
    mean = get(getter, "mean", [2], tf.float16, tf.ones_initializer(), trainable=False, use_resource=resource)
    config = tf.ConfigProto()
    config.graph_options.rewrite_options.min_graph_nodes = -1  # TensorFlow's own optimizers leave small graphs alone
    fetches = ordered(mean, tf.ones([2], tf.float16))
    with sessions.started(config=config) as session:
        before, first, between, second, after = session.run(fetches)
    assert {value.dtype for value in (before, first, between, second, after)} == {np.dtype(np.float16)}
    assert (before.tolist(), between.tolist(), after.tolist()) == ([1, 1], [2, 2], [7, 8, 7, 8])
    if getter is ours:  # of a resource variable it is read after all of them
        assert (first.tolist(), second.tolist()) == ([2, 2], [7, 8])


@pytest.mark.usefixtures("control_flow_of_version_1")
@pytest.mark.parametrize("trainable", [True, False])
def test_what_a_getter_returns_has_what_scripts_ask_of_a_variable(resource, trainable):
    low = get(ours, "w", [3, 2], tf.float16, tf.ones_initializer(), use_resource=resource, trainable=trainable)
    average = tf.train.ExponentialMovingAverage(0.5)
    applied = average.apply([npu_shim.master_of(low)])
    assert average.average(low).dtype.base_dtype == tf.float32
    with tf.Session() as session:
        assert not session.run(tf.is_variable_initialized(low))
        assert session.run(low.initialized_value()).tolist() == [[1, 1]] * 3
        session.run(tf.global_variables_initializer())
        delta = tf.IndexedSlices(tf.constant([[5, 6]], tf.float16), tf.constant([1]))
        session.run(low.scatter_update(delta))
        assert session.run(low).tolist() == [[1, 1], [5, 6], [1, 1]]
        session.run(low.scatter_add(delta))
        added = tf.assign_add(low, tf.ones([3, 2], tf.float16))
        assert added.dtype == tf.float16
        assert session.run(added).tolist() == [[2, 2], [11, 13], [2, 2]]
        session.run(applied)
        assert session.run(average.average(low))[1].tolist() == [(1 + 11) / 2, (1 + 13) / 2]
        assert session.run(low[1] + 1).tolist() == [12, 14]
        assert session.run(tf.reduce_sum(2 * low) - low[0][0]) == 62
        assert session.run(tf.unstack(low)[0]).tolist() == [2, 2]
        assert session.run("net/w/float16_cast:0").tolist() == session.run(low).tolist()
        assert isinstance(low, tf.Tensor) == trainable
        assert (low.shape.as_list(), low.dtype, low.get_shape().ndims) == ([3, 2], tf.float16, 2)
