"""Sparse updates in a compiled step: what TensorFlow's own kernels make of the same rows."""

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf
from compiled_steps import assert_as_in_a_session

from npu_shim.rewriter import tf_internals

pytestmark = sessions.COMPILED
ROWS, COLUMNS = 12, 3
RMS = {"lr": 0.1, "rho": 0.9, "momentum": 0.8, "epsilon": 1e-3}
PROXIMAL = {"lr": 0.1, "l1": 0.05, "l2": 0.2}
FTRL = {"lr": 0.1, "l1": 0.5, "l2": 0.2, "l2_shrinkage": 0.3, "lr_power": -0.5}
UPDATES = [  # op, its variables, its scalars, its other attributes
    ("Adagrad", ("var", "accum"), {"lr": 0.1}, {}),
    ("Adagrad", ("var", "accum"), {"lr": 0.1}, {"update_slots": False}),
    ("AdagradV2", ("var", "accum"), {"lr": 0.1, "epsilon": 1e-2}, {}),
    ("Momentum", ("var", "accum"), {"lr": 0.1, "momentum": 0.9}, {}),
    ("Momentum", ("var", "accum"), {"lr": 0.1, "momentum": 0.9}, {"use_nesterov": True}),
    ("KerasMomentum", ("var", "accum"), {"lr": 0.1, "momentum": 0.9}, {}),
    ("KerasMomentum", ("var", "accum"), {"lr": 0.1, "momentum": 0.9}, {"use_nesterov": True}),
    ("Adadelta", ("var", "accum", "accum_update"), {"lr": 0.5, "rho": 0.9, "epsilon": 1e-3}, {}),
    ("RMSProp", ("var", "ms", "mom"), RMS, {}),
    ("CenteredRMSProp", ("var", "mg", "ms", "mom"), RMS, {}),
    ("Ftrl", ("var", "accum", "linear"), {"lr": 0.1, "l1": 0.5, "l2": 0.2, "lr_power": -0.5}, {}),
    ("Ftrl", ("var", "accum", "linear"), {"lr": 0.1, "l1": 0.5, "l2": 0.2, "lr_power": -0.7}, {}),
    ("FtrlV2", ("var", "accum", "linear"), FTRL, {}),
    ("FtrlV2", ("var", "accum", "linear"), FTRL, {"multiply_linear_by_lr": True}),
    ("ProximalGradientDescent", ("var",), {"alpha": 0.1, "l1": 0.05, "l2": 0.2}, {}),
    ("ProximalGradientDescent", ("var",), {"alpha": 0.1, "l1": 0.0, "l2": 0.2}, {}),
    ("ProximalAdagrad", ("var", "accum"), PROXIMAL, {}),
    ("ProximalAdagrad", ("var", "accum"), dict(PROXIMAL, l1=0.0), {}),
    ("AdagradDA", ("var", "gradient_accumulator", "gradient_squared_accumulator"),
     {"lr": 0.1, "l1": 0.05, "l2": 0.2, "global_step": 3}, {}),
    ("AdagradDA", ("var", "gradient_accumulator", "gradient_squared_accumulator"),
     {"lr": 0.1, "l1": 0.0, "l2": 0.2, "global_step": 3}, {}),
]  # fmt: skip
EPS = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
ROUNDINGS = 16  # in a row's formula, and its reciprocal square roots


INDICES = {"different": [3, 0, 7, 11, 2, 5], "again": [3, 0, 3, 11, 3, 0]}


def sparse_updates(use_resource, dtype=tf.float32, unique=False):
    """A graph with every update, each of variables of its own; placeholders grad and indices; operation "train"."""
    graph = tf.Graph()
    with graph.as_default():
        gradient, given = tf.placeholder(dtype, [6, COLUMNS], "grad"), tf.placeholder(tf.int32, [6], "indices")
        indices = given
        if unique:  # as optimizers do
            indices, places = tf.unique(given)
            gradient = tf.unsorted_segment_sum(gradient, places, tf.shape(indices)[0])
        tf.group([sparse_update(row, gradient, indices, use_resource) for row in enumerate(UPDATES)], name="train")
        tf.global_variables_initializer()
    return graph


def has_kernel(op, dtype):
    """Whether TensorFlow has a kernel on CPUs: not of KerasMomentum for references, few of low dtypes."""
    kernels = [kernel for kernel in tf_internals.kernels().get(op, ()) if kernel.device_type == "CPU"]
    allowed = [constraint.allowed_values.list.type for kernel in kernels for constraint in kernel.constraint]
    return any(dtype.as_datatype_enum in types for types in allowed)


def sparse_update(row, gradient, indices, use_resource):
    place, (name, variables, scalars, attrs) = row
    op = ("ResourceSparseApply" if use_resource else "SparseApply") + name
    if not has_kernel(op, gradient.dtype):
        return tf.no_op()
    dtype, taken = gradient.dtype, {}
    for number, variable in enumerate(variables):
        start = np.random.RandomState(number).uniform(0.5, 1.5, [ROWS, COLUMNS]) * (0.1 if variable == "mg" else 1)
        name_of = "%d_%s_%s" % (place, name, variable)
        owner = tf.get_variable(name_of, initializer=tf.constant(start, dtype), use_resource=use_resource)
        taken[variable] = owner.handle if use_resource else owner._ref()
    given = {k: tf.constant(v, tf.int64 if k == "global_step" else dtype) for k, v in scalars.items()}
    return getattr(tf.raw_ops, op)(grad=gradient, indices=indices, **taken, **given, **attrs)


@pytest.mark.parametrize("indices", [pytest.param("different", marks=pytest.mark.nightly), "again"])
@pytest.mark.parametrize("use_resource", [True, False], ids=["resource", "reference"])
def test_updates_are_those_of_the_kernels(use_resource, indices):
    """Rows that come twice are updated twice, in the order of the gradient's rows."""
    graph = sparse_updates(use_resource)
    compare(graph, INDICES[indices], "float32")


@pytest.mark.parametrize("dtype", list(EPS))
def test_updates_of_rows_that_unique_tells_apart(dtype):
    compare(sparse_updates(True, dtype, unique=True), INDICES["again"], dtype)


def compare(graph, indices, dtype, steps=3):
    gradient = np.random.RandomState(9).randn(6, COLUMNS)
    feeds = {"grad:0": gradient.astype(tf.as_dtype(dtype).as_numpy_dtype), "indices:0": indices}
    tolerance = ROUNDINGS * steps * EPS[dtype]
    step = assert_as_in_a_session(graph, ["train"], [feeds] * steps, "init", tolerance, tolerance)
    assert len(step.state()) > (40 if dtype == "float32" else 10)
    assert all(np.isfinite(np.float64(value)).all() for value in step.state().values())
