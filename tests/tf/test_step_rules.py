"""Rules of `npu_shim.step` beside TensorFlow's kernels; a Python with TensorFlow and JAX."""

import os

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from npu_shim.engine.device import programs
from npu_shim.rewriter import tf_internals
from npu_shim.rewriter.analysis import order
from npu_shim.rewriter.ir import graphdef
from npu_shim.step import packing

jax = pytest.importorskip("jax", reason="JAX is not installed (extra [pjrt])")
from step_cases import CASES, HALF, Draw, known  # noqa: E402
from step_family_cases import FAMILIES  # noqa: E402
from step_value_cases import VALUES  # noqa: E402

from npu_shim.step import interpreter, op_names, unpacking  # noqa: E402
from npu_shim.step.ops import TABLE  # noqa: E402
from npu_shim.step.refusals import Unsupported  # noqa: E402

SEEDS = range(40 if os.environ.get("NPU_SHIM_NIGHTLY") else 1)
ROUGH = {"Digamma": 50, "Lgamma": 50, "Pow": 20, "Prod": 30, "Cumprod": 30, "Erfinv": 50, "Tan": 50, "Sinh": 20,
         "Cosh": 20, "Exp": 10, "Selu": 10, "Expm1": 20, "LRN": 20, "Softplus": 20, "Atanh": 20,
         "CropAndResizeGradBoxes": 40, "Betainc": 200, "Conv3D": 50, "Conv3DBackpropInputV2": 50, "LRNGrad": 50,
         "Polygamma": 50, "Zeta": 50, "Igamma": 50, "Igammac": 50, "Ndtri": 50, "CumulativeLogsumexp": 20,
         "DepthwiseConv2dNativeBackpropFilter": 60, "Conv2DBackpropFilter": 50, "Conv3DBackpropFilterV2": 50,
         **dict.fromkeys(("FusedBatchNormGrad", "FusedBatchNormGradV2", "FusedBatchNormGradV3"), 30)}  # fmt: skip

ALL = {**CASES, **FAMILIES, **VALUES}
OWN = {  # op -> outputs; others are its kernel's own, or unset
    **dict.fromkeys(("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"), slice(3)),
    **dict.fromkeys(("FusedBatchNormGrad", "FusedBatchNormGradV2", "FusedBatchNormGradV3"), slice(3)),
    "Svd": slice(1), "SelfAdjointEigV2": slice(1), "BlockLSTMV2": slice(1, 7, 5),
}  # fmt: skip
REWRITTEN = {"AccumulateNV2"}  # before a session looks for its kernel
ATTRS = {  # Python type of an attribute -> how it is set
    bool: lambda attr, value: setattr(attr, "b", value),
    int: lambda attr, value: setattr(attr, "i", value),
    float: lambda attr, value: setattr(attr, "f", value),
    str: lambda attr, value: setattr(attr, "s", value.encode()),
    list: lambda attr, value: _set_list(attr.list, value),
    tuple: lambda attr, value: attr.shape.CopyFrom(tf.TensorShape([None if n < 0 else n for n in value]).as_proto()),
}


def has_kernel(op, dtypes):
    """Whether TensorFlow has a kernel for the CPU with these dtypes of its attributes, by name."""
    for kernel in tf_internals.kernels().get(op, ()):
        if kernel.device_type in ("CPU", "DEFAULT"):
            asked = [c for c in kernel.constraint if c.name in dtypes]
            allowed = [(c.allowed_values.list.type, dtypes[c.name]) for c in asked]
            if all(tf.as_dtype(dtype).as_datatype_enum in types for types, dtype in allowed):
                return True
    return False


def dtypes_of(op, inputs):
    """What attributes of an op are for these inputs: name -> dtype."""
    named = zip(inputs, tf_internals.op_def(op).input_arg)
    firsts = {arg.type_attr: value[0] if isinstance(value, list) else value for value, arg in named if arg.type_attr}
    return {name: getattr(first, "value", first).dtype for name, first in firsts.items()}


def _set_list(held, values):
    held.SetInParent()
    (held.f if values and isinstance(values[0], float) else held.i).extend(values)


def test_the_names_that_processes_without_jax_know_are_those_of_the_table():
    """Else: python scripts/step_coverage.py --names."""
    assert TABLE.keys() == op_names.NAMES


class Cases:
    """Nodes of many ops in one graph, for one run of a session and one program."""

    def __init__(self, ops, seed):
        self.feeds, self.fetches = {}, []  # tensor -> array; (op, tensor)
        with tf.Graph().as_default() as self.graph:
            for op in ops:
                for inputs, attrs in ALL[op](Draw(seed)):
                    given = {name: value for name, value in attrs.items() if isinstance(value, np.dtype)}
                    if op in REWRITTEN or has_kernel(op, {**dtypes_of(op, inputs), **given}):
                        self.add(op, inputs, attrs)
                assert self.fetches[-1][0] == op, "no case of %s has a kernel" % op

    def add(self, op, inputs, attrs):
        tensors = [self.tensor(value) for value in inputs]
        node = tf.NodeDef(name="case", op=op)
        for arg, value in zip(tf_internals.op_def(op).input_arg, tensors):
            parts = value if isinstance(value, list) else [value]
            node.input.extend("in%d" % number for number in range(len(node.input), len(node.input) + len(parts)))
            if arg.number_attr:
                node.attr[arg.number_attr].i = len(parts)
            if arg.type_attr:
                node.attr[arg.type_attr].type = parts[0].dtype.as_datatype_enum
            if arg.type_list_attr:
                node.attr[arg.type_list_attr].list.type.extend(part.dtype.as_datatype_enum for part in parts)
        for name, value in attrs.items():
            if isinstance(value, np.dtype):
                node.attr[name].type = tf.as_dtype(value).as_datatype_enum
            else:
                ATTRS[type(value)](node.attr[name], value)
        flat = [part for value in tensors for part in (value if isinstance(value, list) else [value])]
        stand_ins = [tf.NodeDef(name="in%d" % at, op="Placeholder") for at in range(len(flat))]
        for stand_in, part in zip(stand_ins, flat):
            stand_in.attr["dtype"].type = part.dtype.as_datatype_enum
        graph_def = tf.GraphDef(node=[*stand_ins, node])
        given = {"in%d:0" % at: part for at, part in enumerate(flat)}
        (operation,) = tf.import_graph_def(graph_def, given, ["case"], name="")
        self.fetches += [(op, tensor) for tensor in operation.outputs[OWN.get(op, slice(None))]]

    def tensor(self, value):
        if isinstance(value, list):
            return [self.tensor(part) for part in value]
        if isinstance(value, known):
            return tf.constant(value.value)
        fed = tf.placeholder(value.dtype, np.shape(value))
        self.feeds[fed] = np.asarray(value)
        return fed

    def of_session(self):
        with tf.Session(graph=self.graph) as session:
            return session.run([tensor for _, tensor in self.fetches], self.feeds)

    def of_step(self):
        module = graphdef.read(self.graph.as_graph_def())
        module.graph.results = {
            tensor.name: module.graph.value(tensor.name.replace(":0", "")) for _, tensor in self.fetches
        }  # fmt: skip
        wanted = [value.node for value in module.graph.results.values()]
        module.graph.keep(order.ancestors([*wanted, *(module.graph[fed.op.name] for fed in self.feeds)]))
        content = packing.packed(module, {fed.op.name: fed.name for fed in self.feeds})
        step = interpreter.function(unpacking.unpacked(content))
        with interpreter.traced_as_tensorflow():
            feeds = {fed.name: value for fed, value in self.feeds.items()}
            lowered = jax.jit(step).lower({}, feeds)
            _, fetched = lowered.compile({"xla_backend_optimization_level": 0})({}, feeds)
        results = programs.results_of(fetched)
        return [np.asarray(results[tensor.name]) for _, tensor in self.fetches]


def close(op, got, wanted):
    """Whether values agree to a few units of the dtype's last place."""
    if got.dtype != wanted.dtype or got.shape != wanted.shape:
        return False
    if wanted.dtype.kind not in "fcV":
        return np.array_equal(got, wanted)
    epsilon = 2.0**-7 if wanted.dtype in HALF[1:] else np.finfo(wanted.dtype).eps
    one, other = (np.asarray(x, np.complex128 if np.iscomplexobj(x) else np.float64) for x in (got, wanted))
    tolerance = epsilon * ROUGH.get(op, 8)
    return bool(np.allclose(one, other, tolerance, tolerance * 4, equal_nan=True))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("table", [CASES, FAMILIES, VALUES], ids=["common", "rarer", "others"])
def test_rules_compute_what_tensorflows_kernels_do(table, seed):
    cases = Cases(sorted(table), seed)
    pairs = list(zip(cases.fetches, cases.of_step(), cases.of_session()))
    wrong = [
        "%s %s:\n%s\nwanted\n%s" % (op, tensor.op.inputs, got, wanted)
        for (op, tensor), got, wanted in pairs if not close(op, got, np.asarray(wanted))
    ]  # fmt: skip
    assert not wrong, "%d differ:\n%s" % (len(wrong), "\n".join(wrong[:20]))


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_a_batch_whose_channels_are_far_from_zero_has_their_variance(layout):
    """E[x^2] - E[x]^2 in float32 would be wrong by a third."""
    x = np.random.RandomState(1).rand(10, 7, 7, 32).astype("f") + np.float32(256)
    images = x if layout == "NHWC" else x.transpose(0, 3, 1, 2)
    rule, attrs = TABLE["FusedBatchNormV3"], {"is_training": True, "epsilon": 1e-3, "data_format": layout}
    y, mean, variance = rule.apply(attrs, images, np.ones(32, "f"), np.zeros(32, "f"))[:3]
    exact, axes = x.astype("d"), (0, 1, 2)
    np.testing.assert_allclose(mean, exact.mean(axes), 1e-6)
    np.testing.assert_allclose(variance, exact.var(axes, ddof=1), 1e-4)
    wanted = (exact - exact.mean(axes)) / np.sqrt(exact.var(axes) + 1e-3)
    np.testing.assert_allclose(y, wanted if layout == "NHWC" else wanted.transpose(0, 3, 1, 2), atol=1e-3)


def test_ftrl_rounds_where_the_kernel_does():
    """In float16 the order of a sum is a unit or two of its last place."""
    half, draw = np.float16, np.random.RandomState(0)
    var, accum, before, grad = values = [draw.uniform(0.1, 4, 1000).astype(half) for _ in range(4)]
    _, _, linear = TABLE["ApplyFtrl"].apply({}, *values, half(3.0), half(0), half(0), half(-0.5))
    wanted = before + (grad - (np.sqrt(accum + grad * grad) - np.sqrt(accum)) / half(3.0) * var)
    assert np.mean(np.asarray(linear) != wanted) < 0.15  # 0.08; of the other order 0.35


@pytest.mark.parametrize(
    ("source", "target"), [("1233", "4321"), ("1234", "3321"), ("1234", "5321"), ("123456", "654321")]
)
@pytest.mark.parametrize("op", ["DataFormatDimMap", "DataFormatVecPermute"])
def test_formats_that_are_no_permutation_are_refused(op, source, target):
    """TensorFlow's kernels stop at them, and so does the session, which runs the step."""
    with pytest.raises(Unsupported, match="is no permutation"):
        TABLE[op].apply({"src_format": source, "dst_format": target}, np.arange(4, dtype=np.int32))


@pytest.mark.parametrize("op", ["ResizeNearestNeighbor", "ResizeBilinear", "ResizeBicubic"])
def test_an_image_that_no_memory_holds_is_refused_at_once(op):
    """TensorFlow's kernels stop at a size whose elements 64 bits do not count."""
    attrs = {"align_corners": False, "half_pixel_centers": True}
    with pytest.raises(Unsupported, match="1610637938 x 1610637938"):
        TABLE[op].apply(attrs, np.ones((5, 1, 1, 2), "f"), np.array([1610637938, 1610637938], np.int32))
