"""Ops on values that XLA lacks, in a compiled step: each against TensorFlow's own kernel, on random inputs."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import npu_shim

pytestmark = pytest.mark.skipif(tf.__version__.startswith("1."), reason="compile_step needs TensorFlow 2.15")
EPS = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
LENGTHS = {"CropAndResizeGradBoxes": 7 * 9 * 3 * 4, "CropAndResizeGradImage": 64}  # of the longest sums
LENGTH = 16  # of the others'
SEGMENTS = np.array([0, 0, 1, 3, 3, 3, 4, 4], np.int32)  # 2 has no row
PICKS = np.array([5, 1, 1, 0, 2, 5, 3, 3], np.int32)
PLACES = np.array([[0, 1], [0, 4], [1, 0], [1, 1], [1, 3], [3, 2], [3, 4]], np.int64)
SHAPE = np.array([4, 5], np.int64)


def floats(*shape):
    return np.random.RandomState(sum(shape)).randn(*shape)


def sparse(**more):
    return {"sp_indices": PLACES, "sp_values": floats(7), "sp_shape": SHAPE, **more}


def product(adjoint_a, adjoint_b, columns=3):
    rows = SHAPE[0 if adjoint_a else 1]
    b = floats(columns, rows) if adjoint_b else floats(rows, columns)
    inputs = {"a_indices": PLACES, "a_values": floats(7), "a_shape": SHAPE, "b": b}
    return "SparseTensorDenseMatMul", inputs, {"adjoint_a": adjoint_a, "adjoint_b": adjoint_b}


def segments(name, **more):
    return name, {"data": floats(6, 3), "indices": PICKS, "segment_ids": SEGMENTS, **more}, {}


def segment_gradient(name):
    inputs = {"grad": floats(5, 3), "indices": PICKS, "segment_ids": SEGMENTS, "output_dim0": np.int32(7)}
    return name, inputs, {}


BOXES = np.array([[0.11, 0.2, 0.72, 0.9], [-0.25, 0.05, 0.95, 1.15], [0.88, 0.6, 0.12, 0.3], [0.0, 0.0, 1.0, 1.0]])
AT_EDGES = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 2.0, 0.0, np.inf, 3.0])
INCOMING = np.array([0.0, 0.0, 0.0, 0.0, -0.0, 0.0, 2.0, 2.0, -2.0])
OWNERS = np.array([1, 0, 1, 0], np.int32)


def crops(size, method):
    """CropAndResize, its gradients of images and (bilinear only) of boxes."""
    boxes, size = {"boxes": BOXES, "box_ind": OWNERS}, np.array(size, np.int32)
    given, attrs = floats(4, *size, 3), {"method": method}
    image = {"image": floats(2, 6, 5, 3), "crop_size": size}
    yield "CropAndResize", {**image, **boxes}, {"extrapolation_value": 2.0, **attrs}
    whole = np.array([2, 6, 5, 3], np.int32)
    yield "CropAndResizeGradImage", {"grads": given, "image_size": whole, **boxes}, {"T": tf.float32, **attrs}
    if method == "bilinear":
        yield "CropAndResizeGradBoxes", {"grads": given, "image": floats(2, 6, 5, 3), **boxes}, attrs


def pools(padding, window, strides, batch):
    attrs = {"ksize": [1, *window, 1], "strides": [1, *strides, 1], "padding": padding, "include_batch_in_index": batch}
    image = np.round(2 * floats(2, 6, 7, 3))  # with equal values
    yield "MaxPoolWithArgmax", {"input": image}, attrs
    pooled = floats(2, 3, 3, 3)
    places = np.random.RandomState(1).randint(0, 126, pooled.shape) + (
        126 * np.arange(2).reshape(2, 1, 1, 1) if batch else 0
    )
    if (padding, window, strides) == ("VALID", (2, 2), (2, 2)):
        yield "MaxPoolGradWithArgmax", {"input": image, "grad": pooled, "argmax": places}, attrs


def means():
    """Mean of integers whose sum their dtype does not hold, and of nothing."""
    for dtype in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"):
        most = np.iinfo(dtype).max // (3 if dtype.endswith("64") else 1)
        yield "Mean", {"input": np.array([[most, 7], [most - 1, 8], [most - 5, 2]], dtype), "axis": np.array([0])}, {}
    for dtype in ("int32", "uint8", "int64", "complex64"):
        yield "Mean", {"input": np.zeros([0, 2], dtype), "axis": np.array([0])}, {"keep_dims": True}


RANKED = np.float64([  # equal ones, NaN, and infinities
    [1, 2, 3], [1, 2, 3], [5, 5, 5], [np.nan, 1, 2], [np.inf, 1, 2], [1, 2, -np.inf], [7, 8, 9],
])  # fmt: skip
CASES = [  # op, its inputs, its attributes
    product(False, False), product(True, False), product(False, True), product(True, True), product(False, False, 40),
    ("SparseTensorDenseAdd", {"a_indices": PLACES, "a_values": floats(7), "a_shape": SHAPE, "b": floats(4, 5)}, {}),
    ("SparseDenseCwiseMul", sparse(dense=floats(5)), {}),
    ("SparseDenseCwiseDiv", sparse(dense=floats(4, 1)), {}),
    ("SparseDenseCwiseAdd", sparse(dense=floats(4, 5)), {}),
    ("SparseReduceSum", {"input_indices": PLACES, "input_values": floats(7), "input_shape": SHAPE,
                         "reduction_axes": np.array([1], np.int32)}, {"keep_dims": True}),
    ("SparseReduceSum", {"input_indices": PLACES, "input_values": floats(7), "input_shape": SHAPE,
                         "reduction_axes": np.array([0, -1], np.int32)}, {}),
    ("SparseSoftmax", sparse(), {}),
    ("SparseReorder", {"input_indices": PLACES[::-1].copy(), "input_values": floats(7), "input_shape": SHAPE}, {}),
    ("SparseReshape", {"input_indices": PLACES, "input_shape": SHAPE, "new_shape": np.array([2, -1, 5])}, {}),
    ("SegmentSum", {"data": floats(8, 3), "segment_ids": SEGMENTS}, {}),
    ("SegmentMean", {"data": floats(8, 3, 2), "segment_ids": SEGMENTS}, {}),
    *(segments("SparseSegment" + kind) for kind in ("Sum", "Mean", "SqrtN")),
    *(segments("SparseSegment%sWithNumSegments" % kind, num_segments=np.int32(7)) for kind in ("Sum", "Mean", "SqrtN")),
    *(segment_gradient("SparseSegment%sGrad" % kind) for kind in ("Sum", "Mean", "SqrtN")),
    *(("ResizeNearestNeighborGrad", {"grads": floats(2, 6, 9, 3), "size": np.array(size, np.int32)}, attrs)
      for size in ([3, 3], [4, 7], [6, 9], [8, 10])
      for attrs in ({}, {"align_corners": True}, {"half_pixel_centers": True})),
    *(case for size in ([4, 3], [1, 1], [7, 9]) for method in ("bilinear", "nearest") for case in crops(size, method)),
    *pools("VALID", (2, 2), (2, 2), False), *pools("VALID", (2, 2), (2, 2), True),
    *pools("SAME", (3, 2), (2, 2), False), *pools("SAME", (2, 2), (1, 1), True),
    *((name, {"y": AT_EDGES, "dy": INCOMING}, {}) for name in ("InvGrad", "ReciprocalGrad", "RsqrtGrad", "SqrtGrad")),
    ("SeluGrad", {"gradients": floats(7), "outputs": np.array([0.0, -0.0, 1.5, -1.5, 3.0, -0.1, 0.1])}, {}),
    *means(),
    ("InTopK", {"predictions": floats(4, 9), "targets": np.array([0, 8, 3, 3], np.int32)}, {"k": 3}),
    ("InTopKV2", {"predictions": RANKED, "targets": np.array([-1, 3, 0, 1, 1, 2, 2], np.int64), "k": np.int64(2)}, {}),
    ("ScatterNdNonAliasingAdd", {"input": floats(6, 2), "indices": PICKS[:, None], "updates": floats(8, 2)}, {}),
]  # fmt: skip
# what XLA must know is no feed
KNOWN = ("a_shape", "sp_shape", "input_shape", "new_shape", "reduction_axes", "size", "output_dim0", "num_segments",
         "crop_size", "image_size", "axis")  # fmt: skip
ENDS_IN_DATA = ("SegmentSum", "SegmentMean", "SparseSegmentSum", "SparseSegmentMean", "SparseSegmentSqrtN")
LOW = ("SparseTensorDenseMatMul", "SparseSegment", "ResizeNearestNeighborGrad", "ScatterNdNonAliasingAdd",
       "InvGrad", "ReciprocalGrad", "RsqrtGrad", "SeluGrad", "SqrtGrad")  # fmt: skip


def results(case, dtype, number, feeds):
    """The tensors of one op, whose inputs become feeds but for those that XLA must know."""
    name, inputs, attrs = case
    given = {}
    for key, value in inputs.items():
        value = value.astype(tf.as_dtype(dtype).as_numpy_dtype) if value.dtype == np.float64 else value
        if key in KNOWN or (key == "segment_ids" and name in ENDS_IN_DATA):
            given[key] = tf.constant(value)
        else:
            given[key] = tf.placeholder(value.dtype, value.shape, "%s_%d" % (key, number))
            feeds[given[key].name] = value
    outputs = getattr(tf.raw_ops, name)(**given, **attrs)
    return list(outputs) if isinstance(outputs, tuple) else [outputs]


@pytest.mark.parametrize("dtype", list(EPS))
def test_an_op_gives_what_its_kernel_gives(dtype):
    cases = [case for case in CASES if dtype == "float32" or case[0].startswith(LOW)]
    feeds, fetches = {}, []
    with tf.Graph().as_default() as graph:
        outputs = [results(case, dtype, number, feeds) for number, case in enumerate(cases)]
        fetches = [tensor for tensors in outputs for tensor in tensors]
    with tf.Session(graph=graph) as session:
        expected = session.run(fetches, feeds)
    actual = npu_shim.compile_step(graph, fetches, list(feeds))(feeds)
    names = [case[0] for case, tensors in zip(cases, outputs) for _ in tensors]
    for name, value, wanted in zip(names, actual, expected):
        assert value.dtype == wanted.dtype, name
        if wanted.dtype.kind in "iub":
            np.testing.assert_array_equal(value, wanted, err_msg=name)
            continue
        tolerance = LENGTHS.get(name, LENGTH) * EPS[dtype]
        np.testing.assert_allclose(np.complex128(value), np.complex128(wanted), tolerance, tolerance, err_msg=name)
