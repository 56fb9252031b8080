"""Each op that sets a variable, beside TensorFlow's kernel: the variables behind two runs of it.

Every op has cases of each dtype of its kernel, of its attributes and of ids; by day one of each op runs.
"""

import itertools
import os

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from npu_shim.rewriter import tf_internals

jax = pytest.importorskip("jax", reason="JAX is not installed (extra [pjrt])")
import ml_dtypes  # noqa: E402
from step_runs import Step, compared, fed, program_of  # noqa: E402
from test_step_rules import has_kernel  # noqa: E402

from npu_shim.step import interpreter  # noqa: E402
from npu_shim.step.ops import TABLE  # noqa: E402
from npu_shim.step.rules import updates  # noqa: E402
from npu_shim.step.rules.table import Update  # noqa: E402

NIGHTLY = bool(os.environ.get("NPU_SHIM_NIGHTLY"))
FLOATS = [np.dtype(name) for name in ("float32", "float16", "float64")] + [np.dtype(ml_dtypes.bfloat16)]
WHOLE = [np.dtype(name) for name in ("int32", "int64", "uint8", "int8", "int16")]
SCALARS = {  # input -> what it is in a case
    "lr": 0.1, "alpha": 0.2, "rho": 0.9, "momentum": 0.75, "epsilon": 0.01, "beta1": 0.9, "beta2": 0.99,
    "beta1_power": 0.81, "beta2_power": 0.98, "beta": 0.9, "l1": 0.05, "l2": 0.2, "l2_shrinkage": 0.3,
    "lr_power": -0.5, "logbase": 0.7, "sign_decay": 0.9,
}  # fmt: skip
OTHERS = {"l1": 0.0, "lr_power": -0.7}  # of every other case
IDS = {"different": [3, 0, 2], "again": [3, 0, 3], "none": []}
FLAGS = ("use_nesterov", "update_slots", "multiply_linear_by_lr")
SHAPES = [(5, 2), (), (0, 2), (7,)]
KNOWN = [op for op in sorted(updates.RULES) if tf_internals.op_def(op) is not None]  # of this TensorFlow
OPTIMIZERS, SCATTERS = ([op for op in KNOWN if part in op] for part in ("Apply", "Scatter"))
PROGRAM = 80  # cases of a graph: to compile many more at once takes longer
ROUNDINGS = 16  # of a formula, in units of its dtype's last place


def _flags(op):
    names = [attr.name for attr in tf_internals.op_def(op).attr if attr.name in FLAGS]
    return [dict(zip(names, values)) for values in itertools.product((False, True), repeat=len(names))]


def cases_of(op):
    """All (dtype, attributes, ids or None, shape of the variable) of an op whose kernel takes that dtype."""
    is_sparse = any(arg.name == "indices" for arg in tf_internals.op_def(op).input_arg)
    ways = [(ids, (4, 2)) for ids in IDS] if is_sparse else [(None, shape) for shape in SHAPES]
    dtypes = FLOATS if "Apply" in op or "Div" in op else [*FLOATS, *WHOLE]  # quotients of whole numbers are refused
    cases = [
        (dtype, flags, ids, shape)
        for dtype in dtypes if _takes(op, dtype)
        for flags in _flags(op) for ids, shape in ways
    ]  # fmt: skip
    return cases


def _takes(op, dtype):
    number = tf.as_dtype(dtype).as_datatype_enum
    attrs = [attr for attr in tf_internals.op_def(op).attr if attr.name in ("T", "dtype")]
    is_allowed = all(number in attr.allowed_values.list.type for attr in attrs if attr.HasField("allowed_values"))
    return is_allowed and has_kernel(op, {"T": dtype, "dtype": dtype, "Tindices": np.dtype(np.int32)})


def some_of(ops):
    """By day one case of each op, so that neighbours in the list have different ones; by night all of them."""
    cases = list(_some_of(ops))
    return [cases[at : at + PROGRAM] for at in range(0, len(cases), PROGRAM)]


def _some_of(ops):
    for number, op in enumerate(ops):
        cases = cases_of(op)
        assert cases, op
        chosen = cases if NIGHTLY else [cases[number * 7 % len(cases)]]
        for at, case in enumerate(chosen):
            yield (op, number + at, *case)


class Graph:
    """Nodes of many ops, each with variables of its own."""

    def __init__(self):
        self.random = np.random.RandomState(0)
        self.variables, self.nodes = [], []

    def numbers(self, shape, dtype, low=0.25, high=2.0):
        if dtype.kind in "iu":
            return np.asarray(self.random.randint(1, 9, shape)).astype(dtype)
        return np.asarray(self.random.uniform(low, high, shape)).astype(dtype)

    def variable(self, shape, dtype, is_handle, most=2.0):
        name = "v%d" % len(self.variables)
        variable = tf.Variable(
            self.numbers(shape, dtype, most / 8, most), name=name, use_resource=is_handle, dtype=tf.as_dtype(dtype)
        )
        self.variables.append(variable)
        return variable.handle if is_handle else variable._ref()

    def add(self, op, number, dtype, flags, ids, shape):
        inputs, attrs = {}, dict(flags)
        for arg in tf_internals.op_def(op).input_arg:
            if arg.is_ref or arg.type == tf.resource.as_datatype_enum:
                most = 0.4 if arg.name == "mg" else 2.0  # a mean whose square is below the mean of squares
                inputs[arg.name] = self.variable(shape, dtype, not arg.is_ref, most)
            else:
                inputs[arg.name] = self.input_of(op, arg.name, number, dtype, ids, shape)
        if any(attr.name == "use_locking" for attr in tf_internals.op_def(op).attr):
            attrs["use_locking"] = bool(number % 2)
        self.nodes.append((op, getattr(tf.raw_ops, op)(name="case%d" % len(self.nodes), **inputs, **attrs)))

    def input_of(self, op, name, number, dtype, ids, shape):
        if name == "indices":
            chosen = np.array(IDS[ids], np.int32)
            return tf.constant(chosen[:, None] if "ScatterNd" in op else chosen)
        if name == "global_step":
            return tf.constant(3, tf.int64)
        if name in ("grad", "gradient", "delta", "updates", "value"):
            rows = shape if ids is None else (len(IDS[ids]), *shape[1:])
            is_one = name == "updates" and number % 3 == 0 and "Nd" not in op
            given = self.numbers(() if is_one else rows, dtype, *((-1, 1) if "Apply" in op else ()))
            if op.endswith(("Min", "Max")) and dtype.kind not in "iu" and given.ndim:
                given[:1] = np.nan  # no minimum and no maximum
            return tf.constant(given, tf.as_dtype(dtype))
        value = OTHERS.get(name, SCALARS[name]) if number % 2 else SCALARS[name]
        return tf.constant(np.array(value, dtype), tf.as_dtype(dtype))

    def differences(self):
        """What differs behind two runs: (op, its variable, got, wanted)."""
        graph = tf.get_default_graph()
        train = tf.group([node if isinstance(node, tf.Operation) else node.op for _, node in self.nodes])
        with tf.Session(graph=graph) as session:
            session.run(tf.global_variables_initializer())
            before = session.run(self.variables)
            state = {variable.op.name: value for variable, value in zip(self.variables, before)}
            step = Step(graph, [train], state)
            for _ in range(2):
                session.run(train)
                step()
            wanted = session.run(self.variables)
        for variable, want in zip(self.variables, wanted):
            got = np.asarray(step.state[variable.op.name])
            if not _close(got, want):
                yield variable.op.name, got, want


def _close(got, want):
    if got.dtype != want.dtype or got.shape != want.shape:
        return False
    if want.dtype.kind in "biu":
        return np.array_equal(got, want)
    epsilon = float(ml_dtypes.finfo(want.dtype).eps) * ROUNDINGS
    wide = np.complex128 if want.dtype.kind == "c" else np.float64
    return np.allclose(got.astype(wide), want.astype(wide), epsilon, epsilon, equal_nan=True)


@pytest.mark.parametrize("ops", [OPTIMIZERS, SCATTERS], ids=["optimizers", "scatters"])
def test_updates_are_those_of_the_kernels(ops):
    wrong = []
    for cases in some_of(ops):
        with tf.Graph().as_default():
            graph, owners = Graph(), {}
            for case in cases:
                first = len(graph.variables)
                graph.add(*case)
                owners.update(("v%d" % at, case) for at in range(first, len(graph.variables)))
            wrong += ["%s %s:\n%s\nwanted\n%s" % (owners[name], name, *both) for name, *both in graph.differences()]
    assert not wrong, "%d differ:\n%s" % (len(wrong), "\n".join(wrong[:20]))


def test_assignments_are_those_of_the_kernels():
    dtypes = [*FLOATS, *WHOLE, np.dtype(bool), np.dtype(np.complex64)]
    with tf.Graph().as_default():
        graph = Graph()
        for dtype, is_handle in itertools.product(dtypes, (False, True)):
            name = "AssignVariableOp" if is_handle else "Assign"
            for op in [name] if dtype.kind == "b" else [name, *_added(is_handle)]:
                assign(graph, op, dtype, is_handle)
        for is_handle in (False, True):
            slices(graph, is_handle)
            count_up(graph, is_handle)
        wrong = list(graph.differences())
    assert not wrong, wrong


def _added(is_handle):
    return ["AssignAddVariableOp", "AssignSubVariableOp"] if is_handle else ["AssignAdd", "AssignSub"]


def assign(graph, op, dtype, is_handle):
    shape = [(3, 2), (), (0,)][len(graph.nodes) % 3]
    inputs = [graph.variable(shape, dtype, is_handle), tf.constant(graph.numbers(shape, dtype), tf.as_dtype(dtype))]
    names = [arg.name for arg in tf_internals.op_def(op).input_arg]
    graph.nodes.append((op, getattr(tf.raw_ops, op)(**dict(zip(names, inputs)))))


def slices(graph, is_handle):
    """Of both signs, and of a row alone."""
    op = tf.raw_ops.ResourceStridedSliceAssign if is_handle else tf.raw_ops.StridedSliceAssign
    parts = [
        ([0, 3], [4, 0], [2, -1], {}),
        ([1, 0], [2, 4], [1, 2], {"shrink_axis_mask": 1}),
        ([2, 1], [2, 3], [1, 1], {}),
    ]
    for (begin, end, strides, masks), dtype in itertools.product(parts, (FLOATS[0], WHOLE[0])):
        shape = np.zeros((4, 4))[tuple(map(slice, begin, end, strides))].shape
        value = graph.numbers(shape[1:] if masks else shape, dtype)
        graph.nodes.append((op, op(ref=graph.variable((4, 4), dtype, is_handle), begin=begin, end=end, strides=strides,
                                   value=value, **masks)))  # fmt: skip


def count_up(graph, is_handle):
    for dtype in (tf.int32, tf.int64):
        variable = tf.Variable(tf.constant(5, dtype), use_resource=is_handle)
        graph.variables.append(variable)
        if is_handle:
            node = tf.raw_ops.ResourceCountUpTo(resource=variable.handle, limit=2**31 - 1, T=dtype)
        else:
            node = tf.raw_ops.CountUpTo(ref=variable._ref(), limit=2**31 - 1)
        graph.nodes.append(("CountUpTo", node))


TESTED = {*OPTIMIZERS, *SCATTERS, "Assign", "AssignAdd", "AssignSub", "AssignVariableOp", "AssignAddVariableOp",
          "AssignSubVariableOp", "StridedSliceAssign", "ResourceStridedSliceAssign", "CountUpTo",
          "ResourceCountUpTo"}  # fmt: skip


def test_every_update_is_in_these_tables():
    assert {op for op, row in TABLE.items() if isinstance(row, Update) and tf_internals.op_def(op)} <= TESTED


def test_rows_of_a_unique_are_updated_at_once():
    """Nothing looks for rows that come twice, for which there is a loop."""
    with tf.Graph().as_default() as graph:
        var = tf.get_variable("v", initializer=np.arange(8, dtype="f").reshape(4, 2), use_resource=False)
        ids, given = fed(np.int32([2, 0, 2, 2]))
        train = tf.train.AdagradOptimizer(0.1).minimize(tf.reduce_sum(tf.sin(tf.gather(var, ids))))
        compared([train], {ids: given}, runs=2)
        program = program_of(graph, [train], [ids])
        state = {one.op.name: np.ones(one.shape, "f") for one in tf.global_variables()}
        with interpreter.traced_as_tensorflow():
            text = str(jax.make_jaxpr(interpreter.function(program))(state, {ids.name: given}))
        assert "while" not in text


def test_rows_below_zero_are_left_out():
    """They are not counted from the end, as NumPy counts them."""
    places, rows = jax.numpy.int32([-1, 1, -3]), np.ones((3, 2), "f")
    results = [
        TABLE["ScatterAdd"].apply({}, np.zeros((3, 2), "f"), places, rows),
        TABLE["ScatterNd"].apply({}, places[:, None], rows, np.int32([3, 2])),
        TABLE["UnsortedSegmentSum"].apply({}, rows, places, np.int32(3)),
    ]
    for result in results:
        np.testing.assert_array_equal(result, [[0, 0], [1, 1], [0, 0]])
