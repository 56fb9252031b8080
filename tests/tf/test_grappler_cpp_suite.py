"""The cases of TensorFlow's C++ suite of its mixed-precision pass, built anew: in profile grappler, where the pass
itself answers as well, and in ascend910 where its rule promises the same.

Names say what a node's op is to the pass: allow, infer, deny or clear.
"""

import json

import grappler_oracle as oracle
import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from grappler_suite import PROFILES, Case, const, values, version_1_graph
from tensorflow import raw_ops

from npu_shim.options import precision

ROUNDING = 2.0**-11  # of float16


@pytest.fixture(autouse=True)
def graph():
    oracle.available()
    with version_1_graph() as built:
        yield built


def chain(x, *steps):
    """Applies (op, name) one after the other, and fetches the end."""
    for op, name in steps:
        x = op(x, name=name)
    return tf.identity(x, "fetch")


def squared(x, name):
    return tf.matmul(x, x, name=name)


def sparse_squared(x, name):
    return raw_ops.SparseMatMul(a=x, b=x, name=name)


@pytest.mark.parametrize("profile", PROFILES)
def test_no_op(graph, profile):
    end = chain(
        const(values(4, 4), "input"),
        (tf.exp, "deny1"), (tf.nn.relu, "clear1"), (tf.sqrt, "infer1"), (tf.nn.relu, "clear2"),
    )  # fmt: skip
    case = Case(graph, [end], profile)
    assert case.rewritten is case.graph_def


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("low", [tf.float16, tf.bfloat16])
def test_already_low(graph, profile, low):
    x = tf.cast(const(values(4, 4), "input"), low)
    end = tf.cast(tf.nn.relu(tf.matmul(tf.nn.relu(x), x)), tf.float32, "fetch")
    case = Case(graph, [end], profile)
    assert case.rewritten is case.graph_def


SIMPLE = [
    (tf.exp, "deny1"), (tf.nn.relu, "clear1"), (tf.sqrt, "infer1"), (tf.nn.relu, "clear2"), (squared, "allow1"),
    (tf.nn.relu, "clear3"), (tf.log, "infer2"), (tf.nn.relu, "clear4"), (sparse_squared, "unlisted"),
    (tf.nn.relu, "clear5"),
]  # fmt: skip


@pytest.mark.parametrize("profile", PROFILES)
def test_simple(graph, profile):
    case = Case(graph, [chain(const(values(8, 8, low=0.1), "input"), *SIMPLE)], profile)
    case.low("allow1", "clear3")
    case.high("deny1", "clear1", "infer1", "infer2", "clear4", "clear5")
    # one product of 8 terms that are alike in size, whose roundings the logarithm and another product pass on
    case.computes_the_same(rtol=64 * ROUNDING, atol=64 * ROUNDING)
    if profile == "grappler":
        case.low("clear2")
        assert sum(case.casts) == 2
        case.agrees_with_the_pass()


def test_gray_ops_as_black(graph, tmp_path):
    """What the pass's level TREAT_INFER_AS_DENY does is a mixlist here."""
    end = chain(
        const(values(8, 8, low=0.1), "input"),
        (tf.exp, "deny1"), (tf.nn.relu, "clear1"), (tf.sqrt, "infer1"), (tf.nn.relu, "clear2"), (squared, "allow1"),
        (tf.nn.relu, "clear3"), (tf.log, "infer2"), (tf.nn.relu, "clear4"), (squared, "allow2"), (tf.log, "infer3"),
    )  # fmt: skip
    entries = precision.profile_table("grappler").entries
    gray = [op for op, entry in entries.items() if entry.listed == "gray" and entry.role == "computes"]
    mixlist = tmp_path / "gray_is_black.json"
    mixlist.write_text(json.dumps({"black-list": {"to-add": gray}}))
    case = Case(graph, [end], modify_mixlist=str(mixlist))
    case.low("clear2", "allow1", "clear3", "clear4", "allow2")
    case.high("deny1", "clear1", "infer1", "infer2", "infer3")
    assert sum(case.casts) == 4
    case.agrees_with_the_pass(environment={"LEVEL": "TREAT_INFER_AS_DENY"})


def test_clear_ops_follow_in_both_directions(graph):
    x = const(values(4, 4), "input")
    first, second = tf.nn.relu(x, name="clear1"), tf.nn.relu(x, name="clear2")
    product = tf.matmul(first, first, name="allow1")
    shapes = tf.shape_n([first, second], name="clear3")
    last = tf.nn.relu(second, name="clear4")
    ends = [tf.identity(product), tf.identity(shapes[1]), tf.identity(last)]
    case = Case(graph, ends)
    case.low("clear1", "clear2", "clear4", "allow1")
    case.high("Identity", "Identity_2")
    assert sum(case.casts) == 3
    case.agrees_with_the_pass()


def test_what_is_fetched_stays(graph):
    """So what is fetched changes what is computed: profile ascend910 knows better, and lowers it under another name."""
    x = const(values(4, 4), "input")
    first = tf.matmul(x, x, name="allow1")
    second = tf.nn.relu(tf.sqrt(tf.nn.relu(first), name="infer1"), name="clear2")
    last = tf.nn.relu(tf.matmul(second, second, name="allow2"), name="clear3")
    case = Case(graph, [first, second, last])
    case.high("allow1", "infer1", "clear2", "clear3")
    case.low("allow2")
    assert case.casts == (1, 1)
    case.agrees_with_the_pass()
    ascend = Case(graph, [first, second, last], "ascend910")
    ascend.low("allow1-in-float16", "allow2")


def test_ops_of_another_device_stay(graph):
    x = const(values(4, 4), "input")
    with tf.device("/device:GPU:0"):
        product = tf.matmul(x, x, name="allow1")
        hidden = tf.tanh(product, name="infer1")
    with tf.device("/device:CPU:0"):
        other = tf.matmul(hidden, hidden, name="allow2")
    case = Case(graph, [tf.nn.relu(other, name="clear1")])
    case.low("allow1")
    case.high("infer1", "allow2", "clear1")
    assert case.casts == (1, 1)
    case.agrees_with_the_pass()


@pytest.mark.parametrize("profile", PROFILES)
def test_the_identity_behind_a_reference_variable_stays(graph, profile):
    x = const(values(4, 4), "input")
    variable = raw_ops.VariableV2(shape=[4, 4], dtype=tf.float32, name="variable")
    initialized = tf.assign(variable, values(4, 4), name="init")
    first = tf.matmul(x, tf.identity(variable, "identity1"), name="allow1")
    second = tf.matmul(x, tf.identity(const(values(4, 4), "other"), "identity2"), name="allow2")
    case = Case(graph, [tf.nn.tanh(first), tf.nn.tanh(second)], profile)
    case.high("identity1")
    case.low("identity2", "allow1", "allow2")
    assert sum(case.casts) == 5 or profile == "ascend910"
    case.computes_the_same(rtol=8 * ROUNDING, atol=8 * ROUNDING, init=initialized.op.name)
    if profile == "grappler":
        case.agrees_with_the_pass()


@pytest.mark.parametrize("profile", PROFILES)
def test_fused_batch_norm_of_version_1_keeps_its_statistics(graph, profile):
    x, weight = const(values(2, 4, 4, 3), "input"), const(values(1, 1, 3, 3), "weight")
    ones, zeros = tf.constant(np.ones(3, np.float32)), tf.constant(np.zeros(3, np.float32))
    norm = raw_ops.FusedBatchNorm(
        x=tf.nn.conv2d(x, weight, 1, "SAME", name="allow1"), scale=ones, offset=zeros, mean=zeros, variance=ones,
        is_training=False, name="norm",
    )  # fmt: skip
    case = Case(graph, [tf.identity(tf.nn.conv2d(norm.y, weight, 1, "SAME", name="allow2"))], profile)
    [node] = [node for node in case.rewritten.node if node.name == "norm"]
    assert (node.op, node.attr["U"].type) == ("FusedBatchNormV2", 1)
    case.low("allow1", "norm", "allow2")
    assert sum(case.casts) == 3 or profile == "ascend910"
    if profile == "grappler":
        case.agrees_with_the_pass()


@pytest.mark.parametrize("profile", PROFILES)
def test_list_attributes(graph, profile):
    product = tf.matmul(const(values(4, 4), "input"), tf.constant(values(4, 4)), name="allow1")
    copies = tf.identity_n([product, product, product], name="clear1")
    total = tf.add_n(copies, name="infer1")
    case = Case(graph, [tf.identity(tf.matmul(total, total, name="allow2"))], profile)
    case.low("allow1", "clear1", "infer1", "allow2")
    case.computes_the_same(rtol=64 * ROUNDING, atol=64 * ROUNDING)
    if profile == "grappler":
        case.agrees_with_the_pass()


def test_an_existing_cast_writes_what_is_read(graph):
    flags = tf.placeholder_with_default(tf.constant(values(4, 4) > 0), [4, 4], "flags")
    cast = tf.cast(flags, tf.float32, name="cast")
    case = Case(graph, [tf.identity(tf.matmul(cast, cast, name="allow1"))])
    case.low("cast", "allow1")
    assert case.casts == (0, 1)
    case.agrees_with_the_pass()


@pytest.mark.parametrize("profile", PROFILES)
def test_a_loop_whose_variables_do_not_match(graph, profile):
    """Black-listed values enter a variable whose next value is a product: the edge back is float32, the product low."""
    x = const(values(4, 4, low=0.0, high=0.2), "input")
    start = [tf.constant(0), tf.exp(x, "deny1"), x]
    _, a, b = tf.while_loop(
        lambda i, a, b: i < 2, lambda i, a, b: (i + 1, tf.matmul(b, b, name="allow1"), tf.tanh(a, "infer1")), start
    )
    case = Case(graph, [tf.identity(a), tf.identity(b)], profile)
    case.low("while/allow1")
    case.high("while/Enter_1", "while/Merge_1", "while/infer1", "while/NextIteration_1")
    case.computes_the_same(rtol=64 * ROUNDING, atol=64 * ROUNDING)
    if profile == "grappler":
        case.low("while/Enter_2", "while/Merge_2", "while/NextIteration_2")
        case.agrees_with_the_pass()


ELEMENT = {"element_shape": [4, 4], "element_dtype": tf.float32}


def reserve(name):
    return raw_ops.TensorListReserve(element_shape=[4, 4], num_elements=3, element_dtype=tf.float32, name=name)


def set_and_get(name, x):
    handle = reserve(name)
    for index in range(2):
        handle = raw_ops.TensorListSetItem(input_handle=handle, index=index, item=x)
    return raw_ops.TensorListGetItem(input_handle=handle, index=1, name=name + "/read", **ELEMENT)


def push_and_pop(name, x):
    handle = raw_ops.EmptyTensorList(element_shape=[4, 4], max_num_elements=4, element_dtype=tf.float32, name=name)
    for _ in range(2):
        handle = raw_ops.TensorListPushBack(input_handle=handle, tensor=x)
    return raw_ops.TensorListPopBack(input_handle=handle, element_shape=[4, 4], element_dtype=tf.float32,
                                     name=name + "/read").tensor  # fmt: skip


def from_tensor(name, x):
    handle = raw_ops.TensorListFromTensor(tensor=tf.stack([x, x]), element_shape=[4, 4], name=name)
    return raw_ops.TensorListStack(input_handle=handle, num_elements=2, name=name + "/read", **ELEMENT)[0]


def batch_and_concat(name, x):
    handle = raw_ops.EmptyTensorList(element_shape=[4, 4], max_num_elements=4, element_dtype=tf.float32, name=name)
    handles = raw_ops.TensorListPushBackBatch(input_handles=tf.stack([handle, handle]), tensor=tf.stack([x, x]))
    both = raw_ops.TensorListConcatLists(input_a=handles[0], input_b=handles[1], element_dtype=tf.float32)
    return raw_ops.TensorListPopBack(input_handle=both, element_shape=[4, 4], element_dtype=tf.float32,
                                     name=name + "/read").tensor  # fmt: skip


@pytest.mark.parametrize("make", [set_and_get, push_and_pop, from_tensor, batch_and_concat])
def test_a_tensor_list_is_low_if_what_it_holds_is(graph, make):
    x = const(values(4, 4), "input")
    inside = make("low", tf.matmul(x, x, name="allow1"))
    outside = make("high", tf.tanh(x, name="infer1"))
    product = tf.matmul(inside, inside, name="allow2")
    case = Case(graph, [tf.identity(product), tf.tanh(outside)])
    case.low("allow1", "low", "low/read", "allow2")
    case.high("high", "high/read")
    assert case.casts == (1, 1)
    case.agrees_with_the_pass()


def test_a_tensor_list_that_leaves_the_graph_stays(graph):
    x = const(values(4, 4), "input")

    @tf.function
    def passed_on(handle):
        return raw_ops.TensorListSetItem(input_handle=handle, index=1, item=tf.constant(values(4, 4)))

    outside = raw_ops.TensorListSetItem(input_handle=reserve("high"), index=0, item=tf.matmul(x, x, name="allow1"))
    read = raw_ops.TensorListGetItem(input_handle=passed_on(outside), index=0, name="high/read", **ELEMENT)
    inside = set_and_get("low", tf.matmul(x, x, name="allow2"))
    case = Case(graph, [tf.identity(tf.matmul(read, inside, name="allow3"))])
    case.low("allow1", "allow2", "allow3", "low", "low/read")
    case.high("high", "high/read")
    case.agrees_with_the_pass()


@pytest.mark.parametrize("profile", PROFILES)
def test_batch_matmul(graph, profile):
    x = const(values(2, 4, 4), "input")
    product = raw_ops.BatchMatMul(x=x, y=x, name="allow1")
    case = Case(graph, [tf.identity(raw_ops.BatchMatMulV2(x=product, y=x, name="allow2"))], profile)
    case.low("allow1", "allow2")
    case.computes_the_same(rtol=64 * ROUNDING, atol=16 * ROUNDING)
    if profile == "grappler":
        assert case.casts == (1, 1)
        case.agrees_with_the_pass()


def inv(x, name):
    return raw_ops.Inv(x=x, name=name)


def reciprocal(x, name):
    return raw_ops.Reciprocal(x=x, name=name)


# op -> range of its inputs, relative and absolute tolerance as TensorFlow's suite has them
BETWEEN = {
    tf.nn.elu: (-5, 5, 1e-3, 1e-3),
    tf.math.erf: (-5, 5, 0, 1e-3),
    tf.math.erfc: (-5, 5, 0, 1e-3),
    inv: (0.01, 10, 1e-3, 0),
    reciprocal: (0.01, 10, 1e-3, 0),
    tf.log: (0.01, 10, 2e-3, 1e-3),
    tf.math.log1p: (-0.99, 9, 5e-3, 1e-3),
    tf.nn.log_softmax: (-8, 8, 1e-2, 0),
    tf.sigmoid: (-5, 5, 0, 1e-3),
    tf.nn.softmax: (-8, 8, 0, 2e-3),
    tf.nn.softplus: (-5, 5, 0, 1e-3),
    tf.sqrt: (0, 10, 1e-3, 1e-3),
    tf.tanh: (-5, 5, 0, 1e-3),
}


@pytest.mark.parametrize("op", BETWEEN, ids=lambda op: op.__name__)
def test_an_op_between_products(graph, op):
    """The op itself in float16, on inputs that float16 holds: a product with the unit matrix changes nothing else."""
    low, high, rtol, atol = BETWEEN[op]
    inputs = values(128, 128, low=low, high=high).astype(np.float16).astype(np.float32)
    unit = tf.constant(np.eye(128, dtype=np.float32))
    x = tf.matmul(const(inputs, "input"), unit, name="allow1")
    x = op(x, name="infer1")
    case = Case(graph, [tf.identity(tf.matmul(x, unit, name="allow2"))])
    case.low("allow1", "infer1", "allow2")
    case.agrees_with_the_pass()
    case.computes_the_same(rtol + ROUNDING, atol)


def test_a_low_tensor_with_readers_of_both_kinds(graph):
    """The suite's MixedFanout; the pass's emulation of float16 on CPUs is not part of this profile."""
    x = const(values(4, 4, low=0.1), "input")
    first = tf.matmul(x, x, name="allow1")
    second = tf.matmul(first, x, name="allow2")
    case = Case(graph, [tf.exp(tf.exp(first, "deny1"), "deny2"), tf.nn.relu(second, name="clear1")])
    case.low("allow1", "allow2")
    case.high("deny1", "deny2", "clear1")
    assert case.casts == (1, 2)
    case.agrees_with_the_pass()
    case.computes_the_same(rtol=16 * ROUNDING)


BF16 = {"profile": "ascend910", "precision_mode": "allow_mix_precision_bf16"}


def test_bfloat16_simple(graph):
    case = Case(graph, [chain(const(values(8, 8, low=0.1), "input"), *SIMPLE)], **BF16)
    case.low("allow1", "clear3", dtype="bfloat16")
    case.high("deny1", "clear1", "infer1", "infer2", "clear4", "clear5")


def test_bfloat16_goes_on_behind_a_convolution(graph):
    x, weight = const(values(1, 4, 4, 3), "input"), const(values(1, 1, 3, 3), "weight")
    bias = tf.nn.bias_add(tf.nn.conv2d(x, weight, 1, "SAME", name="allow1"), tf.constant(values(3)), name="infer1")
    case = Case(graph, [tf.identity(tf.nn.relu(bias, name="clear1"))], **BF16)
    case.low("allow1", "infer1", "clear1", dtype="bfloat16")


def test_bfloat16_does_not_begin_behind_a_black_op(graph):
    x = tf.pow(const(values(1, 4, 4, 3, low=0.1), "input"), 2.0, name="deny1")
    end = tf.nn.relu(tf.nn.bias_add(x, tf.constant(values(3)), name="infer1"), name="clear1")
    case = Case(graph, [tf.identity(end)], **BF16)
    assert case.rewritten is case.graph_def
