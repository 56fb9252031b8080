"""TensorLists: one dtype for all ops of a list, low where its data is; lists that are out of sight stay as they are."""

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf
from sessions import decided_dtype

import npu_shim
from npu_shim.rewriter import tf_internals
from npu_shim.rewriter.graph.lists import LISTS, VARIANT
from npu_shim.rewriter.planner.decisions import Reason
from npu_shim.rewriter.tables.dtypes import FLOAT16, FLOAT32, NUMBERS

pytestmark = pytest.mark.usefixtures("control_flow_of_version_2")
X = np.random.RandomState(0).uniform(-1, 1, [4, 4]).astype(np.float32)
EPSILON = 2.0**-11


def empty(dtype=tf.float32, shape=(4, 4)):
    return tf.raw_ops.EmptyTensorList(
        element_shape=tf.constant(shape, tf.int32), max_num_elements=-1, element_dtype=dtype
    )


def reserve(length):
    return tf.raw_ops.TensorListReserve(element_shape=[4, 4], num_elements=length, element_dtype=tf.float32)


def push(handle, value):
    return tf.raw_ops.TensorListPushBack(input_handle=handle, tensor=value)


def pop(handle, dtype=tf.float32, shape=(4, 4)):
    return tf.raw_ops.TensorListPopBack(
        input_handle=handle, element_shape=tf.constant(shape, tf.int32), element_dtype=dtype
    )


def put(handle, index, value):
    return tf.raw_ops.TensorListSetItem(input_handle=handle, index=index, item=value)


def get(handle, index):
    return tf.raw_ops.TensorListGetItem(
        input_handle=handle, index=index, element_shape=[4, 4], element_dtype=tf.float32
    )


def stack(handle):
    return tf.raw_ops.TensorListStack(
        input_handle=handle, element_shape=[4, 4], element_dtype=tf.float32, num_elements=-1
    )


def set_get(x):
    """Two lists, one of products and one of exponentials."""
    low = put(reserve(2), 0, tf.matmul(x, x))
    high = put(reserve(2), 1, tf.exp(x))
    return tf.matmul(get(low, 0), x), get(high, 1)


def push_pop(x):
    low, high = push(push(empty(), tf.matmul(x, x)), x), push(empty(), tf.exp(x))
    low, last = pop(low)
    return tf.matmul(pop(low)[1], last), pop(high)[1]


def from_tensor(x):
    low = tf.raw_ops.TensorListFromTensor(tensor=tf.stack([tf.matmul(x, x)] * 2), element_shape=[4, 4])
    high = tf.raw_ops.TensorListFromTensor(tensor=tf.exp(tf.stack([x, x])), element_shape=[4, 4])
    return tf.matmul(get(low, 1), x), stack(high)


def joined(x):
    """Lists that are put together have one dtype, those that are pushed to as a batch too."""
    low = tf.raw_ops.TensorListConcatLists(
        input_a=push(empty(), tf.matmul(x, x)), input_b=push(empty(), x), element_dtype=tf.float32
    )
    high = push(empty(), tf.exp(x))
    return stack(low)[1] @ x, pop(high)[1]


def scattered(x):
    products = tf.stack([tf.matmul(x, x)] * 2)
    low = tf.raw_ops.TensorListScatterV2(tensor=products, indices=[1, 0], element_shape=[4, 4], num_elements=3)
    low = tf.raw_ops.TensorListScatterIntoExistingList(input_handle=low, tensor=products, indices=[0, 1])
    low = tf.raw_ops.TensorListResize(input_handle=low, size=2)
    low = tf.raw_ops.TensorListGather(input_handle=low, indices=[1, 0], element_shape=[4, 4], element_dtype=tf.float32)
    high = tf.raw_ops.TensorListSplit(tensor=tf.exp(x), element_shape=[2, 4], lengths=tf.constant([2, 2], tf.int64))
    high = tf.raw_ops.TensorListConcatV2(
        input_handle=high, element_shape=[2, 4], leading_dims=tf.constant([], tf.int64), element_dtype=tf.float32
    )
    return tf.matmul(low[0], x), high.tensor


def added(x):
    """The gradients of a list's readers are added up as lists."""
    low = tf.add_n([push(empty(), tf.matmul(x, x)), push(empty(), tf.matmul(x, x, transpose_b=True))])
    high = tf.zeros_like(push(empty(), tf.exp(x)))
    return tf.matmul(pop(low)[1], x), pop(high)[1]


def through_function(x):
    """Over a call: Grappler leaves these as they are."""
    @tf.function(autograph=False)
    def store(handle, value):
        return push(handle, value)

    low, high = store(empty(), tf.matmul(x, x)), store(empty(), tf.exp(x))
    return tf.matmul(pop(low)[1], x), pop(high)[1]


def of_lists(x):
    low = push(empty(tf.variant, ()), push(empty(), tf.matmul(x, x)))
    high = push(empty(tf.variant, ()), push(empty(), tf.exp(x)))
    low, high = pop(low, tf.variant, ())[1], pop(high, tf.variant, ())[1]
    return tf.matmul(pop(low)[1], x), pop(high)[1]


def in_loops(x):
    """The list of the loop's values, and beside it one of exponentials."""
    array = tf.TensorArray(tf.float32, 3, element_shape=[4, 4])
    other = tf.TensorArray(tf.float32, 3, element_shape=[4, 4])

    def body(i, h, a, b):
        h = tf.matmul(h, x)
        return i + 1, h, a.write(i, h), b.write(i, tf.exp(h))

    _, _, array, other = tf.while_loop(lambda i, *_: i < 3, body, [0, x, array, other])
    return tf.matmul(array.read(2), x), other.stack()


CASES = [set_get, push_pop, from_tensor, joined, scattered, added, through_function, of_lists, in_loops]


def rewritten(build, extra=(), mode="allow_mix_precision"):
    with tf.Graph().as_default() as graph:
        x = tf.placeholder_with_default(X, [4, 4], "x")
        fetches = [tf.identity(y).name for y in build(x)]
    graph_def = graph.as_graph_def()
    done, plan = npu_shim.rewrite(graph_def, [*fetches, *extra], precision_mode=mode)
    assert npu_shim.rewrite(done, [*fetches, *extra], precision_mode=mode)[0] is done
    return graph_def, done, plan, fetches


def values(graph_def, fetches):
    with tf.Graph().as_default(), tf.Session() as session:
        tf.import_graph_def(graph_def, name="")
        return session.run(fetches)


def element_dtypes(plan):
    return {d.node: d.becomes for d in plan.decisions() if d.op in LISTS}


@pytest.mark.parametrize("build", CASES)
def test_a_list_of_products_is_low_and_one_of_exponentials_is_not(build):
    graph_def, done, plan, fetches = rewritten(build)
    assert set(element_dtypes(plan).values()) == {FLOAT16, FLOAT32}
    products = [decided_dtype(node) for node in done.node if node.op in ("MatMul", "BatchMatMulV2")]
    assert set(products) == {FLOAT16}
    for one, other in zip(values(graph_def, fetches), values(done, fetches)):
        np.testing.assert_allclose(one, other, rtol=16 * EPSILON, atol=16 * 4 * EPSILON)


def test_a_list_that_is_fetched_stays_as_it_is():
    def build(x):
        handle = push(empty(), tf.matmul(x, x))
        return (tf.matmul(pop(handle)[1], x),)

    _, _, plan, _ = rewritten(build, ["TensorListPushBack"])
    assert set(element_dtypes(plan).values()) == {FLOAT32}
    assert {d.reason for d in plan.decisions() if d.op in LISTS} == {Reason.CONTAINER}


def test_fetching_what_comes_off_a_list_changes_nothing():
    def build(x):
        handle, _ = pop(push(push(empty(), tf.matmul(x, x)), tf.matmul(x, x)))
        return (tf.matmul(pop(handle)[1], x),)

    _, _, plan, _ = rewritten(build)
    graph_def, done, fetching, _ = rewritten(build, ["TensorListPopBack:1"])
    assert element_dtypes(plan) == element_dtypes(fetching)
    assert set(element_dtypes(plan).values()) == {FLOAT16}
    [one], [other] = (values(graph, ["TensorListPopBack:1"]) for graph in (graph_def, done))
    assert other.dtype == np.float32
    np.testing.assert_allclose(one, other, atol=4 * EPSILON)


def test_a_list_that_an_unknown_op_reads_stays_as_it_is():
    def build(x):
        handle = push(empty(), tf.matmul(x, x))
        kept = tf.raw_ops.OptionalFromValue(components=[handle])
        [handle] = tf.raw_ops.OptionalGetValue(optional=kept, output_types=[tf.variant], output_shapes=[[]])
        return (tf.matmul(pop(handle)[1], x),)

    graph_def, done, plan, fetches = rewritten(build)
    assert set(element_dtypes(plan).values()) == {FLOAT32}
    assert {d.reason for d in plan.decisions() if d.op in LISTS} == {Reason.CONTAINER}
    for one, other in zip(values(graph_def, fetches), values(done, fetches)):
        np.testing.assert_allclose(one, other, rtol=16 * EPSILON, atol=16 * 4 * EPSILON)


def test_a_list_that_nothing_low_is_written_to_stays_as_it_is():
    graph_def, done, _, _ = rewritten(lambda x: (pop(push(empty(), tf.exp(x)))[1],))
    assert done is graph_def


def test_a_list_that_only_products_read_is_written_low():
    """The cast stands before the list, once, instead of behind every read."""
    def build(x):
        handle = tf.raw_ops.TensorListFromTensor(tensor=tf.stack([x, x]), element_shape=[4, 4])
        return tf.matmul(get(handle, 0), x), tf.matmul(get(handle, 1), x)

    _, _, plan, _ = rewritten(build)
    assert set(element_dtypes(plan).values()) == {FLOAT16}
    names = {node.name for node in plan.view.nodes if node.op == "MatMul"}  # on a CPU Casts round their results
    assert sum(cast.dtype == FLOAT16 and cast.tensor not in names for cast in plan.casts) == 1


def test_inner_lists_of_several_dtypes_stay_as_they_are():
    x = tf.constant(X)
    handle = push(push(empty(tf.variant, []), push(empty(), tf.matmul(x, x))), push(empty(tf.int32), [[1] * 4] * 4))
    inner = tf.raw_ops.TensorListGetItem(input_handle=handle, index=0, element_shape=[], element_dtype=tf.variant)
    tf.identity(tf.matmul(pop(inner)[1], x), name="y")
    given = tf.get_default_graph().as_graph_def()
    graph_def, plan = npu_shim.rewrite(given, ["y"], precision_mode="allow_mix_precision")
    assert plan.changed
    assert set(element_dtypes(plan).values()) <= {FLOAT32, NUMBERS["int32"], VARIANT}
    assert np.allclose(values(graph_def, ["y:0"])[0], X @ X @ X, atol=0.02)


def test_empty_lists_of_lists_that_grappler_makes_one_tie_nothing():
    """Both accumulators of an outer loop are pushed into one empty list here, as in a gradient of nested loops."""
    x, shared = tf.constant(X), tf.identity_n([empty(tf.variant, []), tf.constant(X)])[0]
    floats = push(tf.identity(shared), push(empty(), tf.matmul(x, x)))
    integers = push(tf.identity(shared), push(empty(tf.int32), [[1] * 4] * 4))
    first = [pop(handle, tf.variant, [])[1] for handle in (floats, integers)]
    tf.identity(tf.matmul(pop(first[0])[1], x), name="y")
    tf.identity(pop(first[1], tf.int32)[1], name="z")
    given = tf.get_default_graph().as_graph_def()
    graph_def, plan = npu_shim.rewrite(given, ["y", "z"], precision_mode="allow_mix_precision")
    assert FLOAT16 in element_dtypes(plan).values()
    y, z = values(graph_def, ["y:0", "z:0"])
    assert np.allclose(y, X @ X @ X, atol=0.02)
    assert (z == 1).all()


@pytest.mark.parametrize("inner", ["map", "scan"])
@pytest.mark.parametrize("mode", ["allow_mix_precision", "force_fp16"])
@pytest.mark.usefixtures("activated")
def test_a_loop_over_a_list_inside_of_a_loop_has_a_gradient(inner, mode):
    eye = np.eye(4, dtype=np.float32)
    row = lambda r: tf.reshape(tf.matmul(tf.reshape(r, [1, 4]), eye), [4])  # noqa: E731
    rows = {"map": lambda a: tf.map_fn(row, a), "scan": lambda a: tf.scan(lambda _, r: row(r), a)}[inner]
    x = tf.placeholder(tf.float32, [2, 4])
    y = tf.while_loop(lambda i, _: i < 2, lambda i, a: (i + 1, 2.0 * rows(a)), [0, x])[1]
    with tf.Session(config=sessions.config(precision_mode=mode)) as session:
        result, gradient = session.run([y, tf.gradients(y, x)[0]], {x: np.ones([2, 4])})
    assert (result == 4).all()
    assert (gradient[1:] == 4).all()


def test_full_types_do_not_keep_the_old_dtype():
    """TensorFlow 2 notes the element type of a list beside its attribute."""
    _, done, _, _ = rewritten(push_pop)
    changed = [n for n in done.node if n.op in LISTS and n.attr["element_dtype"].type == FLOAT16]
    assert changed
    assert not [n.name for n in changed if "TFT_FLOAT\n" in str(n)]


def test_in_a_list_of_integers_nothing_changes():
    def build(x):
        handle = push(empty(tf.int32, ()), 3)
        return tf.matmul(x, x), pop(handle, tf.int32, ())[1]

    _, done, _, _ = rewritten(build)
    assert {node.attr["element_dtype"].type for node in done.node if node.op in LISTS} == {tf.int32.as_datatype_enum}


def test_the_table_of_list_ops_agrees_with_tensorflow():
    """element_dtype is the first slot, what is written is governed by it, and every op that has one is in the table."""
    defined = tf_internals.op_defs()
    for op, written in LISTS.items():
        types = [attr.name for attr in defined[op].attr if attr.type == "type"]
        assert types[0] == "element_dtype"
        governed = [n for n, arg in enumerate(defined[op].input_arg) if arg.type_attr == "element_dtype"]
        assert governed == ([] if written is None else [written])
    lists = {op for op in defined if op.startswith(("TensorList", "EmptyTensorList"))}
    assert {op for op in lists if any(attr.name == "element_dtype" for attr in defined[op].attr)} == set(LISTS)
    for op in lists - set(LISTS):
        assert any(arg.type == VARIANT for arg in defined[op].input_arg)
