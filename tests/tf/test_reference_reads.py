"""Reads of reference variables see what plain TensorFlow sees, whatever the memory passes through on its way.

For each case   w: v += 1 after memory = case(v)     result: ones x memory after w
An op that hands on the variable's memory gives the new value, one that copies gives the old.
"""

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

import npu_shim

MODES = ("allow_mix_precision", "force_fp16")
HOW = [{"precision_mode": mode} for mode in MODES] + [{"precision_mode": "allow_mix_precision", "profile": "grappler"}]
START = np.arange(256, dtype=np.float32).reshape(16, 16) % 4  # rows of 64 bytes, as TensorFlow aligns tensors


def through_array(r):
    array = tf.TensorArray(tf.float32, 1, clear_after_read=False).write(0, r)
    return array.read(0)


def through_loop(r):
    return tf.while_loop(lambda i, a: i < 2, lambda i, a: (i + 1, a), [0, r], back_prop=False)[1]


def through_cond(r):
    return tf.cond(tf.placeholder_with_default(True, []), lambda: tf.identity(r), lambda: r * 2.0)


CASES = {
    "Identity": tf.identity,
    "IdentityN": lambda r: tf.identity_n([r, r])[1],
    "StopGradient": tf.stop_gradient,
    "CheckNumerics": lambda r: tf.check_numerics(r, "bad"),
    "EnsureShape": lambda r: tf.ensure_shape(r, [16, 16]),
    "PlaceholderWithDefault": lambda r: tf.placeholder_with_default(r, [16, 16]),
    "GuaranteeConst": lambda r: tf.raw_ops.GuaranteeConst(input=r),
    "Bitcast": lambda r: tf.bitcast(tf.bitcast(r, tf.int32), tf.float32),
    "Reshape": lambda r: tf.reshape(r, [8, 32]),
    "ExpandDims": lambda r: tf.squeeze(tf.expand_dims(r, 0), [0]),
    "Split": lambda r: tf.split(r, 2, 0)[1],
    "SplitV": lambda r: tf.split(r, [4, 12], 0)[1],
    "Unpack": lambda r: tf.expand_dims(tf.unstack(r)[1], 0),
    "StridedSlice": lambda r: r[4:8],
    "Slice": lambda r: tf.slice(r, [4, 0], [4, 16]),
    "Transpose": lambda r: tf.transpose(r, tf.placeholder_with_default([0, 1], [2])),
    "Tile": lambda r: tf.tile(r, tf.placeholder_with_default([1, 1], [2])),
    "Pad": lambda r: tf.pad(r, tf.placeholder_with_default([[0, 0], [0, 0]], [2, 2])),
    "BroadcastTo": lambda r: tf.broadcast_to(r, tf.placeholder_with_default([16, 16], [2])),
    "ReverseV2": lambda r: tf.reverse(r, tf.placeholder_with_default(np.zeros(0, np.int32), [0])),
    "AddN": lambda r: tf.raw_ops.AddN(inputs=[r]),
    "Pack": lambda r: tf.squeeze(tf.stack([r]), [0]),
    "Concat": lambda r: tf.concat([r, tf.zeros([0, 16])], 0),
    "Sum": lambda r: tf.reduce_sum(r, tf.placeholder_with_default(np.zeros(0, np.int32), [0])),
    "Max": lambda r: tf.reduce_max(r, tf.placeholder_with_default(np.zeros(0, np.int32), [0])),
    "Where": lambda r: tf.where_v2(tf.placeholder_with_default(True, []), r, r),
    "Einsum": lambda r: tf.einsum("ij->ij", r),
    "PyFunc": lambda r: tf.ensure_shape(tf.py_func(lambda a: a, [r], tf.float32), [16, 16]),
    "a Cast": lambda r: tf.cast(tf.cast(r, tf.float16), tf.float32),
    "MatMul": lambda r: tf.matmul(r, np.eye(16, dtype=np.float32)),
    "Add": lambda r: r + tf.ones([16]),
    "Relu": tf.nn.relu,
    "Gather": lambda r: tf.gather(r, [1, 2]),
    "a TensorArray": through_array,
    "a loop": through_loop,
    "a cond": through_cond,
}


def build():
    """The graph of all cases; returns the names of what is fetched; of the products' inputs, and of the writes."""
    fetches, memories = {}, {}
    for case, make in CASES.items():
        with tf.variable_scope(case.replace(" ", "_"), use_resource=False):
            v = tf.get_variable("v", initializer=START)
            memory = make(v.value())
            with tf.control_dependencies([memory]):
                written = tf.assign_add(v, tf.ones([16, 16]))
            with tf.control_dependencies([written]):
                product = tf.matmul(tf.ones([2, tf.shape(memory)[0]]), memory)
            fetches[case] = tf.identity(product).name  # profile grappler leaves as written what is fetched
            memories[case], memories[f"{case}, written"] = memory.name, written.name
    tf.global_variables_initializer()
    return fetches, memories


def run(graph_def, fetches, config=None):
    config = config or tf.ConfigProto()
    config.graph_options.rewrite_options.min_graph_nodes = -1
    return sessions.run_graph(graph_def, fetches, config=config, initializer="init")


@pytest.fixture(scope="module")
def graph():
    with tf.Graph().as_default() as graph:  # py_func's functions live as long as their graph
        with sessions.control_flow(1):
            fetches, memories = build()
        yield graph.as_graph_def(), fetches, memories


@pytest.fixture(scope="module")
def expected(graph):
    return run(*graph[:2])


def differing(values, expected):
    return [case for case in CASES if not np.array_equal(values[case], expected[case])]


@pytest.mark.parametrize("how", HOW)
def test_in_a_rewritten_graph(graph, expected, how):  # profile grappler knew of no late reads
    graph_def, fetches, _ = graph
    rewritten, plan = npu_shim.rewrite(graph_def, list(fetches.values()), **how)
    assert any(decision.becomes != decision.was for decision in plan.decisions())
    assert differing(run(rewritten, fetches), expected) == []


@pytest.mark.parametrize("mode", MODES)
def test_in_a_session(graph, expected, mode, patched):
    graph_def, fetches, _ = graph
    assert differing(run(graph_def, fetches, sessions.config(precision_mode=mode)), expected) == []


@pytest.mark.parametrize("mode", MODES)
def test_what_is_fetched_is_read_last(graph, mode, patched):  # force_fp16 gave a copy from before the write
    graph_def, _, memories = graph
    plain = run(graph_def, memories)
    assert (plain["Split"] == (START + 1)[8:]).all()
    assert (plain["Relu"] == START).all()
    values = run(graph_def, memories, sessions.config(precision_mode=mode))
    assert [case for case in memories if not np.array_equal(values[case], plain[case])] == []


def test_the_cases_show_both(expected):
    after = (START + 1).sum(0)
    assert (expected["Split"][0] == (START + 1)[8:].sum(0)).all()
    assert (expected["Identity"][0] == after).all()
    assert (expected["Relu"][0] == START.sum(0)).all()


def reads_around_writes():
    """Low-precision readers of one variable before and after it is written, also behind an op that moves data."""
    v = tf.get_variable("v", initializer=START, use_resource=False)
    x = tf.placeholder_with_default(np.eye(16, dtype=np.float32), [16, 16])
    products = []
    waits = []
    for _ in range(3):
        with tf.control_dependencies(waits):
            now = tf.identity(v)
            turned = tf.reshape(now, tf.placeholder_with_default([16, 16], [2]))
        products += [tf.matmul(x, now), tf.matmul(x, turned), tf.exp(-turned)]
        with tf.control_dependencies(products):
            waits = [tf.assign_add(v, tf.ones([16, 16]))]
    tf.global_variables_initializer()
    return [product.name for product in products]


@pytest.mark.parametrize("mode", MODES)
def test_grappler_merges_no_casts_across_a_write(mode):
    with tf.Graph().as_default() as graph:
        fetches = reads_around_writes()
    graph_def = graph.as_graph_def()
    rewritten, _ = npu_shim.rewrite(graph_def, fetches, precision_mode=mode)
    assert sum(node.op == "Cast" for node in rewritten.node) >= 6
    turned = tf.GraphDef(versions=graph_def.versions, node=reversed(graph_def.node))
    assert npu_shim.rewrite(turned, fetches, precision_mode=mode)[0] == rewritten
    for value, wanted in zip(run(rewritten, fetches), run(graph_def, fetches)):
        np.testing.assert_allclose(value, wanted, rtol=2e-3)


# TensorFlow's optimizers find, now or in their second round, that these do nothing
DOES_NOTHING = {
    "x + 0": lambda r: r + 0.0,
    "x - 0": lambda r: r - tf.zeros([16, 16]),
    "x * 1": lambda r: r * tf.ones([16, 16]),
    "x / 1": lambda r: r / 1.0,
    "no bias": lambda r: tf.nn.bias_add(r, np.zeros([16], np.float32)),
    "a power of 1": lambda r: tf.pow(r, 1.0),
    "twice negative": lambda r: tf.negative(-r),
    "DeepCopy": lambda r: tf.raw_ops.DeepCopy(x=r),
    "IdentityN": lambda r: tf.identity_n([r, r])[1],
    "a cond that is decided": lambda r: tf.cond(tf.constant(True), lambda: tf.identity(r), lambda: -r),
    "x + 0, then a slice of all": lambda r: tf.slice(r + 0.0, [0, 0], [16, 16]),
    "the same as one part": lambda r: tf.split(tf.concat([r, tf.zeros([0, 16])], 0) * 1.0, 1, 0)[0],
    "transposed twice": lambda r: tf.transpose(tf.transpose(r)),
}


def reads_that_wait():
    """Fetches of readers, before and after the next write, of what does nothing to a variable that was read late."""
    fetches = []
    for case, make in DOES_NOTHING.items():
        for again in (True, False):
            with tf.variable_scope(None, "".join(filter(str.isalnum, case)), use_resource=False):
                v = tf.get_variable("v", initializer=START)
                early = tf.matmul(tf.ones([2, 16]), v.value())
                with tf.control_dependencies([early]):
                    written = tf.assign_add(v, tf.ones([16, 16]))
                with tf.control_dependencies([written]):
                    read = tf.identity(v.value()) if again else v.read_value()
                same = make(read)
                product = tf.matmul(tf.ones([2, 16]), same)
                with tf.control_dependencies([product, same]):
                    written = tf.assign_add(v, tf.ones([16, 16]))
                with tf.control_dependencies([written]):
                    late = tf.matmul(tf.ones([2, 16]), same)
                fetches += [tf.identity(t).name for t in (early, product, late)]
    tf.global_variables_initializer()
    return fetches


@pytest.fixture(scope="module")
def graph_of_nothing():
    with sessions.control_flow(1), tf.Graph().as_default() as graph:
        fetches = reads_that_wait()
    graph_def = graph.as_graph_def()
    return graph_def, fetches, run(graph_def, fetches)


@pytest.mark.parametrize("device", ["CPU", "GPU"])
@pytest.mark.parametrize("how", HOW)
def test_grappler_moves_no_cast_to_the_variable(graph_of_nothing, how, device):
    graph_def, fetches, wanted = graph_of_nothing
    rewritten, _ = npu_shim.rewrite(graph_def, fetches, device=device, **how)
    assert sum(node.op == "Cast" for node in rewritten.node) >= len(fetches)
    for name, value, right in zip(fetches, run(rewritten, fetches), wanted):
        np.testing.assert_array_equal(value, right, name)


def written_in_place():
    """What is written into the memory of an ordinary tensor, and read by that tensor's name."""
    w = tf.get_variable("w", initializer=START)
    parts = tf.parallel_stack([w[0], w[2]])
    cache = tf.matmul(w, tf.eye(16))
    written = tf.raw_ops.InplaceUpdate(x=cache, i=[1], v=tf.fill([1, 16], 7.0))
    with tf.control_dependencies([written]):
        read = tf.identity(cache)
    return [tf.matmul(parts, w), tf.matmul(read, tf.eye(16)), tf.reshape(read, [-1])]


@pytest.mark.parametrize("mode", [*MODES, "force_fp32", "allow_mix_precision_bf16"])
def test_what_is_written_in_place_is_no_copy(mode, patched):
    """A Cast stood between tf.parallel_stack's buffer and its writes, and gave what had been in that memory."""
    with tf.Graph().as_default():
        fetches = written_in_place()
        results = []
        for config in (tf.ConfigProto(), sessions.config(precision_mode=mode)):
            with sessions.started(config=config) as session:
                results.append(session.run(fetches))
    for plain, low in zip(*results):
        np.testing.assert_array_equal(low, plain)
    assert (results[0][2][16:32] == 7).all()


# what a Cast of the script has read before the write, and a reader of it in the Cast's old dtype afterwards
COPIES = {
    "float16": (tf.float16, lambda r: tf.cast(r, tf.float32)),
    "float16 behind a Reshape": (tf.float16, lambda r: tf.cast(tf.reshape(r, [16, 16]), tf.float32)),
    "float32": (tf.float32, lambda r: tf.cast(r, tf.float16)),
    "integers": (tf.int32, lambda r: tf.cast(r, tf.float32)),
}


def looped(product, v, copy):
    """A loop that adds up the copy of a variable, which it writes in every iteration."""

    def body(i, h):
        h = tf.matmul(h, np.eye(16, dtype=np.float32) / 2) + copy
        with tf.control_dependencies([h]), tf.control_dependencies([tf.assign_add(v, tf.ones_like(v))]):
            return i + 1, tf.identity(h)

    return tf.while_loop(lambda i, h: i < 3, body, [0, product], parallel_iterations=1, back_prop=False)[1]


def copies_before_writes():
    """Fetches of what reads copies after the write; also of a loop that writes in every iteration."""
    fetches = []
    product = tf.matmul(tf.placeholder_with_default(np.eye(16, dtype=np.float32), [16, 16]), START)
    for case, (dtype, copied) in COPIES.items():
        with tf.variable_scope(case.replace(" ", "_"), use_resource=False):
            v = tf.get_variable("v", initializer=START.astype(dtype.as_numpy_dtype))
            copy = copied(v.value())
            with tf.control_dependencies([copy, product]):
                written = tf.assign_add(v, tf.ones([16, 16], dtype))
            with tf.control_dependencies([written]):
                fetches.append(tf.identity(tf.cast(product, copy.dtype) * copy).name)
            fetches.append(tf.identity(looped(product, v, tf.cast(copied(v.value()), tf.float32))).name)
    tf.global_variables_initializer()
    return fetches


@pytest.mark.parametrize("how", [*HOW, {"precision_mode": "force_fp32"}])
def test_a_cast_of_the_script_copies(how):  # float16 readers were led to the variable, which had been written by then
    with sessions.control_flow(1), tf.Graph().as_default() as graph:
        fetches = copies_before_writes()
    graph_def = graph.as_graph_def()
    for fetch in fetches:
        [wanted] = run(graph_def, [fetch])
        [value] = run(npu_shim.rewrite(graph_def, [fetch], **how)[0], [fetch])
        np.testing.assert_allclose(value, wanted, rtol=2e-3, err_msg=fetch)


def popped_behind_a_write():
    """What a loop that starts with a variable's memory hands its gradient, which runs after a write; and a Stack."""
    v = tf.get_variable("v", initializer=START, use_resource=False)
    x, h = tf.placeholder_with_default(np.ones([16, 16], np.float32), [16, 16]), v.read_value()
    y = tf.while_loop(lambda k, h: k < 1, lambda k, h: (k + 1, tf.matmul(x, h) * h), [0, h])[1]
    with tf.control_dependencies([y]):
        written = tf.assign_add(v, tf.ones([16, 16]))
    with tf.control_dependencies([written]):
        incoming = x / 16.0
    gradients = tf.gradients(y, [h, x], grad_ys=incoming)
    u = tf.get_variable("u", initializer=START, use_resource=False)
    stack = tf.raw_ops.StackV2(max_size=2, elem_type=tf.float32)
    with tf.control_dependencies([tf.raw_ops.StackPushV2(handle=stack, elem=u.read_value())]):
        popped = tf.raw_ops.StackPopV2(handle=stack, elem_type=tf.float32)
    with tf.control_dependencies([popped]):
        written = tf.assign_add(u, tf.ones([16, 16]))
    with tf.control_dependencies([written]):
        read = tf.matmul(popped, tf.placeholder_with_default(np.eye(16, dtype=np.float32), [16, 16]))
    tf.global_variables_initializer()
    return [tensor.name for tensor in (*gradients, read)]


@pytest.mark.parametrize("mode", [*MODES, "force_fp32"])
def test_what_is_popped_behind_a_write(mode, patched):
    with sessions.control_flow(1), tf.Graph().as_default() as graph:
        fetches = popped_behind_a_write()
    plain = run(graph.as_graph_def(), fetches)
    assert (plain[2] == START + 1).all()
    assert plain[0].any()
    for _ in range(3):  # a Cast raced with the write
        values = run(graph.as_graph_def(), fetches, sessions.config(precision_mode=mode))
        assert [np.abs(value - wanted).max() for value, wanted in zip(values, plain)] == [0, 0, 0]


def staged(value):
    own = {"dtypes": [tf.float32], "shared_name": "staged"}
    return tf.raw_ops.Stage(values=[value], shared_name="staged"), lambda: tf.raw_ops.Unstage(**own)[0]


def staged_by_key(value):
    own, key = {"dtypes": [tf.float32], "shared_name": "mapped"}, tf.constant(0, tf.int64)
    put = tf.raw_ops.MapStage(key=key, indices=[0], values=[value], **own)
    return put, lambda: tf.raw_ops.MapUnstage(key=key, indices=[0], **own)[0]


def queued(value):
    queue = tf.FIFOQueue(9, [tf.float32], [[16, 16]])
    return queue.enqueue(value), queue.dequeue


@pytest.mark.parametrize("put", [staged, staged_by_key, queued])
def test_what_is_taken_from_outside_behind_a_write(put, patched):
    with tf.Graph().as_default() as graph:
        v = tf.get_variable("v", initializer=START, use_resource=False)
        done, take = put(v.read_value())
        with tf.control_dependencies([done]):
            taken = take()
        with tf.control_dependencies([taken]):
            written = tf.assign_add(v, tf.ones([16, 16]))
        with tf.control_dependencies([written]):
            read = -taken
        tf.global_variables_initializer()
    for mode in MODES:
        for _ in range(5):  # a Cast raced with the write
            [value] = run(graph.as_graph_def(), [read.name], sessions.config(precision_mode=mode))
            np.testing.assert_array_equal(value, -(START + 1), mode)
