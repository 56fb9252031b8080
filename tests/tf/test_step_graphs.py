"""Steps of `npu_shim.step` beside sessions: control flow of both versions, rows, random numbers, order of writes."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

jax = pytest.importorskip("jax", reason="JAX is not installed (extra [pjrt])")
from step_runs import Step, compared, fed, program_of  # noqa: E402

from npu_shim import export  # noqa: E402
from npu_shim.rewriter.errors import ConfigError  # noqa: E402
from npu_shim.step import functions, interpreter  # noqa: E402
from npu_shim.step.refusals import Refusal  # noqa: E402


@pytest.fixture(autouse=True)
def graph_mode():
    with tf.Graph().as_default() as graph:
        yield graph


@pytest.fixture
def v1_control_flow():
    was = tf.control_flow_v2_enabled()
    tf.disable_control_flow_v2()
    yield
    if was:
        tf.enable_control_flow_v2()


@pytest.fixture
def v2_control_flow():
    was = tf.control_flow_v2_enabled()
    tf.enable_control_flow_v2()
    yield
    if not was:
        tf.disable_control_flow_v2()


def number(value=1.5, shape=()):
    return tf.placeholder_with_default(np.full(shape, value, np.float32), shape)


def power_loop(x, count, body=None):
    body = body or (lambda i, y: (i + 1, y * x + tf.cast(i, tf.float32)))
    return tf.while_loop(lambda i, y: i < count, body, [0, x])[1]


def condition_of(x):
    """A conditional with a gradient on both sides, and one inside it."""
    inner = lambda: tf.cond(x[1] > 0, lambda: x * x, lambda: tf.sin(x))  # noqa: E731
    return tf.reduce_sum(tf.cond(x[0] > 0, inner, lambda: tf.exp(x) * 2.0))


def nested(x):
    def outer(i, y):
        inner = tf.while_loop(lambda j, z: j < 3, lambda j, z: (j + 1, z * tf.sin(x) + y), [0, y])[1]
        return i + 1, inner * 0.5

    return tf.reduce_sum(tf.while_loop(lambda i, y: i < 4, outer, [0, x])[1])


def conditional_in_loop(x):
    def body(i, y):
        return i + 1, tf.cond(tf.equal(i % 2, 0), lambda: tf.sin(y) * x, lambda: y + x)

    return tf.reduce_sum(tf.while_loop(lambda i, y: i < 5, body, [0, x])[1])


def arrays(x):
    array = tf.TensorArray(tf.float32, 4, clear_after_read=False).unstack(x)
    out = tf.TensorArray(tf.float32, 4)
    body = lambda i, o: (i + 1, o.write(i, array.read(i) * array.read(3 - i)))  # noqa: E731
    return tf.reduce_sum(tf.while_loop(lambda i, o: i < 4, body, [0, out])[1].stack() ** 2)


LOOPS = {
    "power": lambda x: tf.reduce_sum(power_loop(x, 5)),
    "condition": condition_of,
    "conditional in a loop": conditional_in_loop,
    "arrays": arrays,
    "nested": nested,
}


@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.parametrize("value", [0.7, -0.7])
def test_version_1_with_gradients(v1_control_flow, name, value):
    x, given = fed(np.linspace(value, 1.2, 4).astype(np.float32))
    y = LOOPS[name](x)
    compared([y, tf.gradients(y, x)[0]], {x: given})


@pytest.mark.parametrize("name", LOOPS)
def test_version_2_with_gradients(v2_control_flow, name):
    x, given = fed(np.linspace(0.7, 1.2, 4).astype(np.float32))
    y = LOOPS[name](x)
    compared([y, tf.gradients(y, x)[0]], {x: given})


def test_a_loop_whose_length_is_fed_wants_to_know_it(v1_control_flow):
    x, given = fed(np.float32([0.5, 0.6]))
    n, count = fed(np.int32(4))
    y = tf.reduce_sum(power_loop(x, n))
    fetches = [y, tf.gradients(y, x)[0]]
    with pytest.raises(Refusal) as refused:
        compared(fetches, {x: given, n: count})
    assert refused.value.feeds == (n.name,)
    compared(fetches, {x: given}, {n: count})
    compared([y], {x: given, n: count})  # without a gradient nothing is kept


def test_so_does_one_of_version_2(v2_control_flow):
    """Feeds of floats are not asked for: what a loop makes of them may never end."""
    x, given = fed(np.float32([0.5, 0.6]))
    n, count = fed(np.int32(4))
    y = tf.reduce_sum(power_loop(x, n))
    z = tf.while_loop(lambda z: tf.reduce_sum(z) < 9.0, lambda z: [tf.square(z)], [x])[0]
    for of, feeds, named in ((y, {x: given, n: count}, (n.name,)), (z, {x: given}, ())):
        with pytest.raises(Refusal, match="how many there are at most is not known") as refused:
            Step(tf.get_default_graph(), tf.gradients(of, x), (), [*feeds])(feeds)
        assert refused.value.feeds == named
    compared([y, tf.gradients(y, x)[0]], {x: given}, {n: count})


def counted(step, limit):
    """A loop that counts in float32: 0.1 seven times is less than 0.7."""
    return lambda x: tf.while_loop(
        lambda i, y: i < np.float32(limit), lambda i, y: (i + np.float32(step), y * x + i), [np.float32(0), x]
    )[1]


def triangle(x):
    def outer(i, y):
        return i + 1, tf.while_loop(lambda j, z: j < i, lambda j, z: (j + 1, z * tf.sin(x) + y), [0, y])[1]

    return tf.while_loop(lambda i, y: i < 4, outer, [0, x])[1]


BOUNDS = {  # loops whose counts are known, or bounded by a part of their condition
    "float32": counted(0.1, 0.7),
    "float32, other steps": counted(0.3, 2.1),
    "a geometric one": lambda x: tf.while_loop(
        lambda i, y: i > 0.05, lambda i, y: (i * 0.7, y * x + i), [np.float32(1), x]
    )[1],
    "data": lambda x: tf.while_loop(
        lambda i, y: tf.logical_and(i < 6, tf.reduce_sum(y) < 3.0), lambda i, y: (i + 1, y * (x + 1.0)), [0, x]
    )[1],
    "either": lambda x: tf.while_loop(
        lambda i, y: (i < 7) & ((i < 2) | (tf.reduce_sum(y) > 0.3)), lambda i, y: (i + 1, y * (x + 0.2)), [0, x]
    )[1],
    "the smaller of two": lambda x: tf.while_loop(
        lambda i, y: tf.maximum(i, i - 1) < tf.minimum(tf.size(x) + 2, tf.cast(8 * x[0], tf.int32)),
        lambda i, y: (i + 1, y * (x + 0.2)), [0, x],
    )[1],
    "down to the larger of two": lambda x: tf.while_loop(
        lambda i, y: i > tf.maximum(1, tf.cast(x[0] * 4, tf.int32)), lambda i, y: (i - 1, y * (x + 0.2)), [6, x]
    )[1],
    "of another loop": triangle,
}  # fmt: skip


def test_stacks_have_room_for_all_iterations(v1_control_flow):
    x, given = fed(np.float32([0.5, 0.6]))
    sums = [tf.reduce_sum(make(x)) for make in BOUNDS.values()]
    compared([*sums, *(tf.gradients(y, x)[0] for y in sums)], {x: given}, tolerance=4e-6)


def test_what_is_no_bound_is_not_taken_for_one(v1_control_flow):
    x, given = fed(np.float32([0.5, 0.6]))
    n, least = fed(np.int32(-2))
    body = lambda i, y: (i - 1, y * x + tf.sin(y))  # noqa: E731
    y = tf.reduce_sum(tf.while_loop(lambda i, y: i > tf.minimum(3, n), body, [6, x])[1])
    fetches = [y, tf.gradients(y, x)[0]]
    with pytest.raises(Refusal, match="how many there are at most is not known"):
        compared(fetches, {x: given, n: least})
    compared(fetches, {x: given}, {n: least})


def test_a_bound_that_is_passed_is_told(v1_control_flow, monkeypatch):
    from npu_shim.step.control_flow import trips

    right = trips._counted

    def one_less(*arguments):
        count = right(*arguments)
        return count._replace(most=count.most - 1, last={}) if count.most else count

    monkeypatch.setattr(trips, "_counted", one_less)
    x, given = fed(np.float32([0.05, 0.06]))
    for make in (BOUNDS["data"], lambda x: power_loop(x, 5)):
        y = tf.reduce_sum(make(x))
        values = Step(tf.get_default_graph(), [y, tf.gradients(y, x)[0]], (), [x])({x: given})
        assert np.isnan(np.append(*values)).all()


def test_a_loop_variable_that_grows(v1_control_flow):
    x, given = fed(np.float32([[0.5, 0.6]]))
    _, y = tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, tf.concat([y, y[:1] * 2], 0)), [0, x],
                         shape_invariants=[tf.TensorShape([]), tf.TensorShape([None, 2])])  # fmt: skip
    compared([y], {x: given})


def test_case_and_calls(v2_control_flow):
    x, given = fed(np.float32([0.5, 0.6]))
    k, which = fed(np.int32(7))
    chosen = tf.switch_case(k, [lambda: x, lambda: x * 2, lambda: x * 3])
    called = tf.function(lambda y: (y * 2, y + 1))(chosen)
    compared([chosen, *called], {x: given, k: which})


def test_writes_in_conditionals(v1_control_flow):
    p, taken = fed(np.bool_(True))
    for resource in (False, True):
        v = tf.get_variable("v%d" % resource, initializer=np.float32([1, 2]), use_resource=resource)
        one = tf.cond(p, lambda v=v: tf.assign_add(v, [1.0, 1.0]).op, lambda v=v: tf.assign_sub(v, [5.0, 5.0]).op)
        with tf.control_dependencies([one]):
            after = tf.identity(v.read_value())
        for value in (taken, not taken):
            compared([after], {p: np.bool_(value)}, runs=2)


def of_two_sides(x, p):
    """Fetches whose other side would divide by zero, overflow, never end, or fail a check."""
    n = tf.cast(tf.reduce_sum(x), tf.int32) * 0  # zero, which nobody knows before
    v = tf.get_variable("v", initializer=np.float32(1), use_resource=True)
    forever = lambda: tf.while_loop(lambda i: i >= n, lambda i: tf.abs(i * 3 % 7) + 1, [n + 1])  # noqa: E731

    def checked():
        with tf.control_dependencies([tf.assert_less(x, tf.cast(n, tf.float32))]):
            return tf.assign(v, v * tf.exp(x[0] * 1000.0)) + tf.sqrt(-x[1])

    y = tf.cond(p, lambda: tf.reduce_sum(tf.square(x)), lambda: tf.reduce_sum(tf.log(-x) / tf.cast(n, tf.float32)))
    return [
        tf.cond(p, lambda: n + 5, lambda: 7 // n), tf.cond(p, lambda: n + 6, forever),
        tf.cond(p, lambda: v * 2.0, checked), y, tf.gradients(y, x)[0],
    ]  # fmt: skip


@pytest.mark.parametrize("version", [1, 2])
def test_a_side_that_is_not_taken_has_no_effect(version, request):
    request.getfixturevalue("v%d_control_flow" % version)
    x, given = fed(np.float32([0.5, 0.25]))
    p, taken = fed(np.bool_(True))
    compared(of_two_sides(x, p), {x: given, p: taken}, runs=2)


def test_a_sparse_gradient_of_one_branch_and_slices_that_are_set(v1_control_flow):
    x, given = fed(np.float32([[1, 2], [3, 4], [5, 6]]))
    p, taken = fed(np.bool_(True))
    i, at = fed(np.int32(1))
    w = tf.get_variable("w", initializer=np.float32([[1, 2], [3, 4], [5, 6]]))
    y = tf.reduce_sum(tf.cond(p, lambda: tf.gather(w, [0, 2]) * 2, lambda: w[:2] * 3) * x[:2])
    gradient = tf.convert_to_tensor(tf.gradients(y, w)[0])
    fetches = [y, gradient]
    for resource in (False, True):
        v = tf.get_variable(
            "v%d" % resource, initializer=np.float32(np.arange(12)).reshape(3, 4), use_resource=resource
        )
        with tf.control_dependencies([v[1:, ::2].assign([[7.0, 8.0], [9.0, 10.0]])]):
            second = v[i].assign([1.0, 2.0, 3.0, 4.0])
        with tf.control_dependencies([second]):
            fetches.append(v.read_value() + 0)
    for side in (taken, not taken):
        compared(fetches, {x: given, p: np.bool_(side), i: at})


def test_every_update_counts(v1_control_flow):
    """Also where more than one op is between what reads the variable and what sets it."""
    yes, start = tf.placeholder_with_default(True, ()), np.float32(1)
    halved = {
        "direct": (lambda v: v * 0.5, 0.5),
        "handed": (lambda v: tf.identity(v * 0.5), 0.5),
        "longer": (lambda v: (v + 1) * 0.25 - 0.25, 0.25),
    }
    for how, (next_value, factor) in halved.items():
        for resource in (False, True):
            v = tf.get_variable("%s%d" % (how, resource), initializer=start, use_resource=resource)
            update = lambda v=v, f=next_value: tf.group([tf.assign(v, f(v)).op for _ in range(3)])  # noqa: E731
            for op in (update(), tf.cond(yes, update, tf.no_op)):
                step = Step(tf.get_default_graph(), [op], {v.op.name: start})
                step()
                assert step.state[v.op.name] == factor**3, (v.op.name, op.name)


def test_updates_that_take_one_read_see_one_value():
    """A session reads the variable once, too: in 30 runs of TensorFlow 2.21 it was 1 or 2, never 3."""
    v = tf.get_variable("v", initializer=np.float32(0), use_resource=True)
    read = v.read_value()
    step = Step(tf.get_default_graph(), [v.assign(read + 1).op, v.assign(read + 2).op], {"v": np.float32(0)})
    step()
    assert step.state["v"] in (1, 2)


def test_updates_of_which_two_take_one_read_and_another_none_of_theirs():
    """One of the two counts, and so does the third one: also where it comes first, as the second waits for it."""
    for waits in (False, True):
        v = tf.get_variable("v%d" % waits, initializer=np.float32(1), use_resource=True)
        read = v.read_value()
        first, third = v.assign(read * 2).op, v.assign(v.read_value() * 3)
        with tf.control_dependencies([third] if waits else []):
            second = v.assign(read * 5).op
        step = Step(tf.get_default_graph(), [first, third.op, second], {v.op.name: np.float32(1)})
        step()
        assert step.state[v.op.name] in (6, 15)


def test_reads_come_before_writes_that_they_do_not_follow():
    v = tf.get_variable("v", initializer=np.float32(1), use_resource=True)
    before = v.read_value() * 2
    add = tf.assign_add(v, 1.0)
    with tf.control_dependencies([add]):
        after = v.read_value() * 2
    assert Step(tf.get_default_graph(), [before, after], {"v": np.float32(1)})() == [2, 4]


def test_a_fetched_reference_variable_is_read_last(v1_control_flow):
    v = tf.get_variable("v", initializer=np.float32(1), use_resource=False)
    add = tf.assign_add(v, 1.0).op
    assert Step(tf.get_default_graph(), [v.value(), add], {"v": np.float32(1)})() == [2, None]


def test_rows_whose_number_depends_on_data():
    x, given = fed(np.float32([[1, -2], [3, 4], [-5, 6], [7, 8]]))
    w = tf.get_variable("w", initializer=np.float32([[1, 2, 3], [4, 5, 6]]))
    rows = tf.boolean_mask(x, x[:, 0] > 0)
    loss = tf.reduce_mean(tf.square(tf.tanh(tf.matmul(rows, w) * 0.1))) + tf.reduce_sum(tf.reduce_max(rows, 1))
    compared([loss, *tf.gradients(loss, [x, w])], {x: given})
    ids, places = fed(np.int64([3, 1, 3, 2, 1]))
    unique, index = tf.unique(ids)
    sums = tf.unsorted_segment_sum(tf.gather(x, index), index, tf.shape(unique)[0])
    compared([index, tf.reduce_sum(sums * tf.cast(unique, tf.float32)[:, None], 0)], {x: given, ids: places})


def test_a_padded_row_is_in_the_windows_that_contain_it():
    """XLA takes one row between zeros for a row in each window."""
    x, given = fed(np.float32([[1, 2, 3, 4]]))
    padded = tf.pad(x, [[2, 2], [0, 0]])
    image = tf.pad(tf.reshape(x, [1, 1, 1, 4]), [[0, 0], [2, 2], [2, 2], [0, 0]])
    fetches = [
        tf.cumsum(padded), tf.cumsum(padded, reverse=True, exclusive=True), tf.math.cumprod(padded + 1.0),
        tf.nn.avg_pool2d(image, 3, 1, "SAME"), tf.nn.lrn(tf.transpose(padded)[None, None], 1),
    ]  # fmt: skip
    compared([*fetches, tf.gradients(fetches[0][2], x)[0]], {x: given})


def branches_of_other_sizes():
    x, given = fed(np.float32([[1, -2], [3, 4], [-5, 6]]))
    p, taken = fed(np.bool_(True))
    fetches = []
    for other in (lambda: tf.boolean_mask(x, x[:, 0] > 0), lambda: x[:1]):
        y = tf.cond(p, lambda: x * 2.0, other)
        fetches += [tf.reduce_sum(y**2), tf.shape(y)[0], tf.reduce_mean(y, 0)]
    for side in (taken, not taken):
        compared(fetches, {x: given, p: np.bool_(side)})


def side_that_shapes_decide():
    """Sizes are known behind it: a product of rows whose number depends on data is refused."""
    x, over = tf.placeholder(tf.float32, [None, 2]), lambda: tf.shape(x)[0] % 4
    y = tf.cond(over() > 0, lambda: tf.pad(x, [[0, 4 - over()], [0, 0]]), lambda: x)
    product = tf.matmul(y, y, transpose_b=True)
    for count in (3, 4):
        compared([product, *tf.gradients(product**2, x)], {x: np.float32([[1, -2], [3, 4], [-5, 6], [7, 8]])[:count]})


def test_branches_of_other_sizes_give_rows(v1_control_flow):
    branches_of_other_sizes()
    side_that_shapes_decide()


def test_branches_of_version_2_too(v2_control_flow):
    branches_of_other_sizes()
    side_that_shapes_decide()


def test_what_branches_of_version_2_keep_for_their_gradient(v2_control_flow):
    """In one place matrices of two shapes, of which the graph says the rank, and rows whose number data decide."""
    x, p = tf.placeholder(tf.float32, [None, 4]), tf.placeholder(tf.bool, [])
    w = tf.get_variable("w", initializer=np.linspace(-1, 1, 16).astype(np.float32).reshape(4, 4), use_resource=True)
    rows = lambda: tf.reduce_sum(tf.sigmoid(tf.boolean_mask(x @ w, x[:, 0] > 0.0)))  # noqa: E731
    deep = lambda: tf.cond(x[0, 0] > 0.0, lambda: tf.exp(x @ w) * x, lambda: tf.sigmoid(x @ w))  # noqa: E731
    fetches = []
    for one, other in ((rows, lambda: tf.reduce_sum(w)), (deep, lambda: tf.tanh(x * w[0]))):
        loss = tf.reduce_mean(tf.square(tf.cond(p, one, other) - 1.0))
        fetches += [loss, *tf.gradients(loss, [x, w])]
    for taken in (True, False):
        compared(fetches, {x: np.float32([[0.5, -1, 0.25, 1], [-1, 0.75, 0.5, 1]]), p: np.bool_(taken)}, tolerance=2e-6)


def test_what_would_count_rows_that_are_not_there_is_refused():
    x, given = fed(np.float32([[1, -2], [3, 4], [-5, 6], [7, 8]]))
    rows = tf.boolean_mask(x, x[:, 0] > 0)
    first = rows[:, 0]
    for value in (
        tf.matmul(rows, rows, transpose_b=True), tf.one_hot(tf.cast(first, tf.int32), 3, axis=0),
        tf.linalg.diag_part(rows),
    ):  # fmt: skip
        with pytest.raises(Refusal):
            Step(tf.get_default_graph(), [tf.reduce_sum(value)], (), [x])({x: given})


@pytest.mark.parametrize("places", [[2, 0, 2, 1], [2, 0, 3, 1]], ids=["twice", "apart"])
def test_a_row_that_comes_twice_is_updated_twice(places):
    ids, places = fed(np.int64(places))
    gradient, given = fed(np.float32([[1, -2], [3, 4], [-5, 6], [7, 8]]))
    updates = []
    for wanted in (None, tf.not_equal(ids, 0)):
        rows = [value if wanted is None else tf.boolean_mask(value, wanted) for value in (gradient, ids)]
        names = ["v%d_%s" % (len(updates), name) for name in ("weights", "accumulator")]
        v, a = [tf.get_variable(name, initializer=np.ones([4, 2], np.float32), use_resource=True) for name in names]
        update = tf.raw_ops.ResourceSparseApplyAdagrad(
            var=v.handle, accum=a.handle, lr=0.5, grad=rows[0], indices=rows[1]
        )
        updates.append(update)
    compared(updates, {gradient: given, ids: places}, runs=2)


def test_sparse_updates_by_optimizers(v1_control_flow):
    for number, make in enumerate([tf.train.AdamOptimizer, tf.train.AdagradOptimizer, tf.train.RMSPropOptimizer,
                                   lambda rate: tf.train.MomentumOptimizer(rate, 0.9), tf.train.FtrlOptimizer,
                                   tf.train.GradientDescentOptimizer, tf.train.AdadeltaOptimizer]):  # fmt: skip
        with tf.Graph().as_default():
            table = tf.get_variable("t", initializer=np.linspace(-1, 1, 10).astype(np.float32).reshape(5, 2),
                                    use_resource=bool(number % 2))  # fmt: skip
            ids, given = fed(np.int32([3, 1, 3, 2]))
            dense = tf.get_variable("d", initializer=np.float32([0.5, 1.5]), use_resource=bool(number % 2))
            loss = tf.reduce_sum(tf.square(tf.gather(table, ids) * dense))
            compared([loss, make(0.1).minimize(loss)], {ids: given}, tolerance=2e-6, runs=2)


def test_barriers_are_of_what_is_not_known():
    x, given = fed(np.float32([1, 2]))
    types = tf.AttrValue(list=tf.AttrValue.ListValue(type=[tf.float32.as_datatype_enum, tf.int32.as_datatype_enum]))
    again, shape = tf.get_default_graph().create_op(
        "XlaOptimizationBarrier", [tf.tanh(x), tf.shape(x)], [tf.float32, tf.int32], attrs={"T": types}
    ).outputs  # fmt: skip
    fetches = [tf.reshape(again * 2, shape)]  # no session has a kernel for it
    np.testing.assert_allclose(Step(tf.get_default_graph(), fetches, (), [x])({x: given}), [np.tanh(given) * 2], 1e-6)
    step = interpreter.function(program_of(tf.get_default_graph(), fetches, [x]))
    with interpreter.traced_as_tensorflow():
        text = jax.jit(step).lower({}, {x.name: given}).as_text()
    assert len([line for line in text.split("\n") if "optimization_barrier %" in line]) == 1


def test_an_op_without_a_rule_is_named():
    x, given = fed(np.float32([1, 2]))
    y = tf.strings.length(tf.as_string(x), name="count")
    with pytest.raises(Refusal, match=r"'AsString' \(AsString\): this op has no rule"):
        Step(tf.get_default_graph(), [y], (), [x])({x: given})


def test_a_step_is_a_jax_function_of_its_state_by_name(tmp_path):
    """Losses of a seeded step beside a session's; its gradient by JAX beside TensorFlow's; and the same of a file."""
    x, given = fed(np.float32([[1, -2], [3, 4], [-5, 6]]))
    w = tf.get_variable("w", initializer=np.float32([[1, 2], [3, 4]]))
    h = tf.get_variable("h", initializer=np.float32([0.5, 1.5]), use_resource=True)
    loss = tf.reduce_mean(tf.square(tf.nn.dropout(tf.tanh(tf.matmul(x, w) * 0.1), rate=0.4, seed=2) * h - 1), name="l")
    step = tf.train.get_or_create_global_step()
    train = tf.train.AdamOptimizer(0.1).minimize(loss, step)
    gradient = tf.gradients(tf.reduce_sum(tf.tanh(x * h)), h)[0]
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        ours = export.as_jax(session, [loss, train], [x])
        plain = export.as_jax(session, tf.reduce_sum(tf.tanh(x * h)), [x])
        export.write_jax(session, [loss, train], [x.name], str(tmp_path / "step.npz"))
        wanted_gradient = session.run(gradient, {x: given})
        wanted = [session.run([loss, train], {x: given})[0] for _ in range(3)]
        last = session.run({variable.op.name: variable for variable in tf.global_variables()})
    for function in (ours, functions.load(str(tmp_path / "step.npz"))):
        state, seen = function.state, []
        with jax.enable_x64(True):
            compiled = jax.jit(function)
            for _ in range(3):
                state, fetched = compiled(state, {x.name: given})
                seen.append(fetched[loss.name])
        np.testing.assert_allclose(seen, wanted, 1e-6)
        for name, value in last.items():
            np.testing.assert_allclose(state[name], value, 1e-5, 1e-6)
    took = jax.grad(lambda h: plain({**plain.state, "h": h}, {x.op.name: given})[1][plain.fetches[0]])(plain.state["h"])
    np.testing.assert_allclose(took, wanted_gradient, 1e-5, 1e-5)
    with pytest.raises(ConfigError, match=r"variable 'hh' is none of the step's.*'h'"):
        plain({"hh": 0}, {x.name: given})


def test_a_step_as_a_function_takes_the_graphs_dtypes_and_shapes_alone():
    """Regression: a column broadcast with a vector, labels as floats were cut off, and int32 counters trained."""
    x, y = tf.placeholder(tf.float32, [None], "x"), tf.placeholder(tf.int32, [None], "y")
    w = tf.get_variable("w", initializer=np.float32([0.5, 1.5]), use_resource=True)
    scale = tf.placeholder(tf.float32, [], "scale")
    loss = tf.reduce_sum(tf.square(x - tf.gather(w, y)) * scale, name="l")
    train = tf.train.GradientDescentOptimizer(0.1).minimize(loss, tf.train.get_or_create_global_step())
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        step = export.as_jax(session, [loss, train], [x, y, scale])
        good = {"x": np.float32([1, 2]), "y": np.int32([0, 1]), "scale": 0.5}
        wanted = session.run(loss, {name + ":0": value for name, value in good.items()})
    for other in ({}, {"x": [1, 2], "y": [0, 1]}, {"x": np.float64([1, 2]), "y": np.int64([0, 1])}):
        new, fetched = step(step.state, {**good, **other})
        np.testing.assert_allclose(fetched[loss.name], wanted)
        assert (new["global_step"], new["w"].dtype) == (1, np.float32)
    for other, message in [
        ({"x": np.float32([[1], [2]])}, r"feed 'x:0' has shape \[2, 1\], the graph expects \[None\]"),
        ({"y": np.float32([0, 1])}, "feed 'y:0' is float32, expected int32"),
        ({"y": [0, 2**40]}, "1099511627776, which int32 cannot hold"),
        ({"x": jax.numpy.asarray([1, 2], "float16")}, "feed 'x:0' is float16, expected float32"),
    ]:
        with pytest.raises(ConfigError, match=message):
            step(step.state, {**good, **other})
    with pytest.raises(ConfigError, match=r"variable 'w' has shape \[1\], the graph expects \[2\]"):
        step({**step.state, "w": np.ones(1, np.float32)}, good)
    with pytest.raises(ConfigError, match=r"'global_step' is int32, expected int64: .*jax.enable_x64\(True\)"):
        jax.jit(step)(step.state, good)
    with pytest.raises(ConfigError, match="names are str"):
        step(step.state, {x: good["x"], y: good["y"]})
    with jax.enable_x64(True):  # in which JAX makes a plain number float64
        np.testing.assert_allclose(jax.jit(step)(step.state, good)[1][loss.name], wanted)
