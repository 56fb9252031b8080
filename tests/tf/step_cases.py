"""A table of ops with which each rule of `npu_shim.step` is compared with TensorFlow's kernel: op -> cases of one seed.

A case is the inputs of one node and its attributes. An input is an array, which is fed and so traced, or a constant,
`known(array)`. Arrays come from `Draw`, which puts odd values among them: NaN, infinities, -0.0.
"""

import ml_dtypes
import numpy as np
import tensorflow.compat.v1 as tf

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = [np.dtype(name) for name in ("float32", "float64", "float16")] + [BFLOAT16]
WHOLE = [np.dtype(name) for name in ("int32", "int64", "uint8", "int8", "int16")]
HALF = (np.dtype(np.float16), BFLOAT16)


class known:
    """An input that is a constant of the graph."""

    def __init__(self, value, dtype=np.int32):
        self.value = value if isinstance(value, np.ndarray) else np.array(value, dtype)


class Draw:
    """Random arrays of one seed."""

    def __init__(self, seed):
        self.random = np.random.RandomState(seed)

    def dims(self, rank, low=1, high=5):
        return tuple(self.random.randint(low, high, rank).tolist())

    def array(self, shape, dtype, low=-3.0, high=3.0, odd=True):
        """Uniform numbers; a tenth of them odd ones."""
        if dtype == np.bool_:
            return np.asarray(self.random.rand(*shape) < 0.5)
        if np.issubdtype(dtype, np.integer):
            least = max(0, int(np.floor(low))) if np.dtype(dtype).kind == "u" else int(np.floor(low))
            values = np.asarray(self.random.randint(least, int(np.ceil(high)) + 1, shape)).astype(dtype)
            strange = [np.iinfo(dtype).max, np.iinfo(dtype).min]
        else:
            values = np.asarray(self.random.uniform(low, high, shape)).astype(dtype)
            if values.dtype.kind == "c":
                values = (values + 1j * self.random.uniform(low, high, shape)).astype(dtype)
            strange = [np.nan, np.inf, -np.inf, -0.0, 0.0, 1.0]
        if odd and values.size:
            values = np.array(values)
            flat = values.reshape(-1)
            for at in np.flatnonzero(self.random.rand(flat.size) < 0.1):
                flat[at] = np.array(strange[self.random.randint(len(strange))]).astype(dtype)
        return values

    def pair(self, dtype, low=-3.0, high=3.0, odd=True):
        """Two arrays that broadcast."""
        shape = self.dims(self.random.randint(0, 4))
        other = tuple(1 if self.random.rand() < 0.3 else size for size in shape[self.random.randint(len(shape) + 1) :])
        arrays = [self.array(dims, dtype, low, high, odd) for dims in (shape, other)]
        return arrays if self.random.rand() < 0.5 else arrays[::-1]

    def one_of(self, *choices):
        return choices[self.random.randint(len(choices))]


def _unary(dtypes, low=-3.0, high=3.0, odd=True):
    def cases(draw):
        return [([draw.array(draw.dims(draw.random.randint(0, 4)), dtype, low, high, odd)], {}) for dtype in dtypes]

    return cases


def _binary(dtypes, low=-3.0, high=3.0, odd=True):
    return lambda draw: [(draw.pair(dtype, low, high, odd), {}) for dtype in dtypes]


def _grad(dtypes, low=-1.0, high=1.0, odd=True):
    def cases(draw):
        shape = draw.dims(2)
        return [([draw.array(shape, dtype, low, high, odd), draw.array(shape, dtype)], {}) for dtype in dtypes]

    return cases


def _reduction(dtypes, odd=True):
    def cases(draw):
        drawn = []
        for dtype in dtypes:
            rank = draw.random.randint(1, 4)
            axes = draw.random.permutation(rank)[: draw.random.randint(0, rank + 1)]
            axes = draw.one_of(axes, axes - rank) if len(axes) else axes
            values = draw.array(draw.dims(rank, 1, 6), dtype, odd=odd)
            drawn.append(([values, known(axes.astype(np.int32))], {"keep_dims": bool(draw.random.randint(2))}))
        return drawn

    return cases


def _matmul(draw):
    m, k, n = draw.dims(3, 1, 9)
    for dtype in (*FLOATS, np.dtype(np.int32)):
        a, b = bool(draw.random.randint(2)), bool(draw.random.randint(2))
        x = draw.array((k, m) if a else (m, k), dtype, odd=False)
        y = draw.array((n, k) if b else (k, n), dtype, odd=False)
        yield [x, y], {"transpose_a": a, "transpose_b": b}


def _batch_matmul(draw):
    m, k, n = draw.dims(3, 1, 7)
    for dtype in FLOATS[:2]:
        a, b = bool(draw.random.randint(2)), bool(draw.random.randint(2))
        lead = draw.one_of(((2, 3), (2, 3)), ((2, 1), (1, 3)), ((), (2,)))
        x = draw.array((*lead[0], *((k, m) if a else (m, k))), dtype, odd=False)
        y = draw.array((*lead[1], *((n, k) if b else (k, n))), dtype, odd=False)
        yield [x, y], {"adj_x": a, "adj_y": b}


def _gather(draw):
    shape = draw.dims(3)
    axis = draw.random.randint(3)
    indices = draw.random.randint(0, shape[axis], draw.dims(draw.random.randint(0, 3))).astype(np.int32)
    for dtype in (np.float32, np.int64, np.bool_):
        yield [draw.array(shape, np.dtype(dtype)), indices, known(axis - draw.one_of(0, 3))], {}
    batch = draw.dims(2, 2, 4)
    rows = draw.random.randint(0, 5, (*batch, 2)).astype(np.int64)
    yield [draw.array((*batch, 5, 2), np.dtype(np.float32)), rows, known(2)], {"batch_dims": 2}


def _strided_slice(draw):
    shape = draw.dims(3, 2, 6)
    x = draw.array(shape, np.dtype(np.float32))
    begin = [draw.random.randint(-size, size) for size in shape]
    end = [draw.random.randint(-size, size + 2) for size in shape]
    strides = [draw.one_of(1, 1, 2, -1) for _ in shape]
    masks = {mask: int(draw.random.randint(8)) for mask in ("begin_mask", "end_mask")}
    yield [x, known(begin), known(end), known(strides)], masks
    yield [x, known([0, begin[1], 0]), known([1, end[1], 1]), known([1, 1, 1])], {"shrink_axis_mask": 5}
    yield [x, known([0, 0]), known([0, 1]), known([1, 1])], {"ellipsis_mask": 1, "new_axis_mask": 0}
    yield [x, known([0, 0]), known([0, 1]), known([1, 1])], {"new_axis_mask": 1}
    i = np.array([draw.random.randint(shape[0])], np.int32)
    yield [x, i, i + 1, known([1])], {"shrink_axis_mask": 1}


def _strided_slice_grad(draw):
    shape = draw.dims(2, 3, 6)
    g = draw.array((len(range(1, shape[0], 2)), shape[1]), np.dtype(np.float32))
    yield [known(shape), known([1, 0]), known([shape[0], 0]), known([2, 1]), g], {"end_mask": 2}


def _slice(draw):
    shape = draw.dims(2, 2, 6)
    begin = [draw.random.randint(size) for size in shape]
    x = draw.array(shape, np.dtype(np.float32))
    yield [x, known(begin), known([-1, shape[1] - begin[1]])], {}
    yield [x, np.array(begin, np.int32), known([1, 1])], {}


def _segments(draw):
    for dtype in (np.float32, np.int32):
        x = draw.array((6, 2), np.dtype(dtype), odd=False)
        yield [x, draw.random.randint(-1, 4, 6).astype(np.int32), known(5)], {}


def _convolution(draw):
    for dtype in FLOATS[:3]:
        dilation = draw.one_of(1, 2)
        stride = 1 if dilation > 1 else draw.one_of(1, 2)
        x = draw.array((2, 7, 6, 3), dtype, odd=False)
        w = draw.array((3, 2, 3, 4), dtype, odd=False)
        attrs = {"strides": [1, stride, stride, 1], "padding": draw.one_of("SAME", "VALID")}
        yield [x, w], {**attrs, "dilations": [1, dilation, dilation, 1]}


def _convolved_size(size, kernel, stride, padding):
    return -(-size // stride) if padding == "SAME" else -(-(size - kernel + 1) // stride)


def _convolution_gradient(of):
    def cases(draw):
        stride, padding = draw.one_of(1, 2), draw.one_of("SAME", "VALID")
        h, w = _convolved_size(7, 3, stride, padding), _convolved_size(6, 2, stride, padding)
        x = draw.array((2, 7, 6, 3), np.dtype(np.float32), odd=False)
        kernel = draw.array((3, 2, 3, 4), np.dtype(np.float32), odd=False)
        g = draw.array((2, h, w, 4), np.dtype(np.float32), odd=False)
        inputs = [known(x.shape), kernel, g] if of == "input" else [x, known(kernel.shape), g]
        yield inputs, {"strides": [1, stride, stride, 1], "padding": padding}

    return cases


def _depthwise(draw):
    x = draw.array((2, 6, 6, 3), np.dtype(np.float32), odd=False)
    w = draw.array((3, 3, 3, 2), np.dtype(np.float32), odd=False)
    stride = draw.one_of(1, 2)
    yield [x, w], {"strides": [1, stride, stride, 1], "padding": draw.one_of("SAME", "VALID")}


def _pool(draw):
    x = draw.array((2, 7, 6, 3), np.dtype(np.float32), odd=False)
    size, stride = draw.one_of(2, 3), draw.one_of(1, 2)
    attrs = {"ksize": [1, size, size, 1], "strides": [1, stride, stride, 1], "padding": draw.one_of("SAME", "VALID")}
    yield [x], attrs


def _average_pool_grad(draw):
    ((_,), attrs) = next(iter(_pool(draw)))
    size, stride = attrs["ksize"][1], attrs["strides"][1]
    dims = [_convolved_size(n, size, stride, attrs["padding"]) for n in (7, 6)]
    yield [known((2, 7, 6, 3)), draw.array((2, *dims, 3), np.dtype(np.float32), odd=False)], attrs
    one = draw.array((2, 1, 1, 3), np.dtype(np.float32), odd=False)  # XLA takes it for a part of every window
    yield [known((2, 5, 5, 3)), one], {"ksize": [1, 2, 2, 1], "strides": [1, 4, 4, 1], "padding": "VALID"}


def _max_pool_grad(draw):
    ((x,), attrs) = next(iter(_pool(draw)))
    size, stride = attrs["ksize"][1], attrs["strides"][1]
    dims = [_convolved_size(n, size, stride, attrs["padding"]) for n in (7, 6)]
    y = draw.array((2, *dims, 3), np.dtype(np.float32), odd=False)  # the rule computes its own
    yield [x, y, draw.array(y.shape, np.dtype(np.float32), odd=False)], attrs


def _batch_norm(draw):
    training = bool(draw.random.randint(2))
    x = draw.array((3, 4, 5, 2), np.dtype(np.float32), odd=False)
    vectors = [draw.array((2,), np.dtype(np.float32), 0.5, 2.0, odd=False) for _ in range(4)]
    given = [np.zeros(0, np.float32)] * 2 if training else vectors[2:]
    yield [x, *vectors[:2], *given], {"is_training": training, "epsilon": 0.001, "U": np.dtype(np.float32)}


def _softmax(draw):
    return [([draw.array((3, 5), dtype, odd=False)], {}) for dtype in FLOATS[:3]]


def _cross_entropy(draw):
    labels = np.exp(draw.array((4, 5), np.dtype(np.float32), odd=False))
    labels = (labels / labels.sum(1, keepdims=True)).astype(np.float32)
    yield [draw.array((4, 5), np.dtype(np.float32), odd=False), labels], {}


def _sparse_cross_entropy(draw):
    yield [draw.array((4, 5), np.dtype(np.float32), odd=False), draw.random.randint(0, 5, 4).astype(np.int64)], {}


def _select(draw):
    shape = draw.dims(2)
    for condition in (shape, shape[:1]):
        x, y = (draw.array(shape, np.dtype(np.float32)) for _ in range(2))
        yield [draw.array(condition, np.dtype(bool)), x, y], {}


def _one_hot(draw):
    indices = draw.random.randint(-1, 6, draw.dims(2)).astype(np.int64)
    on, off = np.float32(2), np.float32(-1)
    yield [indices, known(5), np.array(on), np.array(off)], {"axis": draw.one_of(-1, 0, 1, 2)}


def _formats(draw):
    """Three layouts as (source, target, which are equally long)."""
    one, other = draw.one_of(("NHWC", "NCHW"), ("NCHW", "NHWC"), ("NDHWC", "NCDHW"))
    return {"src_format": one, "dst_format": other}, len(one)


def _dims_of_format(draw):
    attrs, size = _formats(draw)
    yield [draw.random.randint(-size, size, (3,)).astype(np.int32)], attrs
    yield [known(draw.random.randint(-size, size, (3,)))], attrs


def _permuted_to_format(draw):
    attrs, size = _formats(draw)
    yield [draw.random.randint(0, 9, size).astype(np.int32)], attrs
    yield [draw.random.randint(0, 9, (size, 2)).astype(np.int64)], attrs
    yield [draw.random.randint(0, 9, size - 2).astype(np.int32)], attrs


def _unique_rows(draw):
    for dims in ((7,), (6, 2), (6, 1, 3)):
        yield [draw.random.randint(0, 2, dims).astype(np.int32), known([0])], {}
    yield [known(draw.random.randint(0, 2, (6, 2))), known([0])], {}


def _pool_with_places(draw):
    ((x,), attrs) = next(iter(_pool(draw)))
    for part in ({}, {"include_batch_in_index": True}):
        yield [np.round(x)], {**attrs, **part}  # many are equal: the first has the place


def _pool_grad_with_places(draw):
    places = draw.random.randint(0, 7 * 6 * 3, (2, 3, 3, 3))
    attrs = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"}
    yield [_floats(draw, 2, 7, 6, 3), _floats(draw, 2, 3, 3, 3), places], attrs


def _max_pool_grad_grad(draw):
    """Of what was pooled: the kernel compares it with the elements."""
    ((x,), attrs) = next(iter(_pool(draw)))
    with tf.Graph().as_default(), tf.Session() as session:
        y = session.run(tf.raw_ops.MaxPool(input=x, **attrs))
    yield [x, y, _floats(draw, *x.shape)], attrs


def _max_pool_grad_grad_v2(draw):
    for inputs, attrs in _max_pool_grad_grad(draw):
        yield [*inputs, known(attrs["ksize"]), known(attrs["strides"])], {"padding": attrs["padding"]}


def _pad(draw):
    amounts = draw.random.randint(0, 3, (2, 2)).astype(np.int32)
    yield [draw.array(draw.dims(2), np.dtype(np.float32)), known(amounts)], {}


def _mirror_pad(draw):
    amounts = draw.random.randint(0, 3, (2, 2)).astype(np.int32)
    yield [draw.array((4, 5), np.dtype(np.float32)), known(amounts)], {"mode": draw.one_of("REFLECT", "SYMMETRIC")}


def _mirror_pad_grad(draw):
    yield [_floats(draw, 6, 8), known([[1, 1], [2, 1]])], {"mode": draw.one_of("REFLECT", "SYMMETRIC")}


def _bincounts(draw):
    numbers = draw.random.randint(0, 6, draw.one_of((9,), (2, 5))).astype(np.int32)
    yield [numbers, known(5), np.zeros(0, np.float32)], {"binary_output": bool(draw.random.randint(2))}
    yield [draw.random.randint(0, 6, (2, 5)).astype(np.int32), known(5), _floats(draw, 2, 5)], {}


def _with(*makers):
    """Cases of fixed inputs: functions of a Draw that give (inputs, attributes)."""
    return lambda draw: [maker(draw) for maker in makers]


def _floats(draw, *shape):
    return draw.array(shape, np.dtype(np.float32))


def _concat(draw):
    parts = [draw.array((size, 3), np.dtype(np.float32)) for size in draw.dims(3, 0, 4)]
    yield [parts, known(draw.one_of(0, -2))], {}


def _cast(draw):
    for source in (*FLOATS[:3], BFLOAT16, np.dtype(np.int32), np.dtype(bool), np.dtype(np.int64)):
        for target in (np.float32, np.float16, BFLOAT16, np.int32, np.bool_, np.int64):
            values = draw.array((7,), source, -100, 100, odd=np.dtype(target).kind == "f" or target is BFLOAT16)
            yield [values], {"DstT": np.dtype(target)}


def _cumulative(draw):
    for dtype in (np.float32, np.int32):
        flags = {"exclusive": bool(draw.random.randint(2)), "reverse": bool(draw.random.randint(2))}
        yield [draw.array((4, 3), np.dtype(dtype), odd=False), known(draw.one_of(0, 1, -1))], flags


def _arg(draw):
    for dtype in (np.float32, np.int32):
        x = draw.array((4, 5), np.dtype(dtype))
        x[0, :3] = np.nan if dtype == np.float32 else 0
        yield [x, known(draw.one_of(0, 1, -1))], {"output_type": np.dtype(draw.one_of(np.int32, np.int64))}


def _clip(draw):
    yield [_floats(draw, 3, 4), np.array(-1, np.float32), np.array(1, np.float32)], {}


def _reverse_sequence(draw):
    yield [_floats(draw, 3, 5, 2), draw.random.randint(0, 6, 3).astype(np.int64)], {"seq_dim": 1, "batch_dim": 0}


def _gather_nd(draw):
    yield [_floats(draw, 3, 4, 2), draw.random.randint(0, 3, (5, draw.one_of(1, 2))).astype(np.int32)], {}


def _scatter_nd(draw):
    yield [draw.random.randint(0, 3, (5, 1)).astype(np.int32), _floats(draw, 5, 2), known([4, 2])], {}


def _tensor_scatter(draw):
    indices = draw.random.permutation(4)[:3].reshape(3, 1).astype(np.int32)
    yield [_floats(draw, 4, 2), indices, _floats(draw, 3, 2)], {}
    some, others = np.float32([[1, np.nan]] * 4), np.float32([[np.nan, 2]] * 3)
    yield [some, indices, others], {}


def _top_k(draw):
    yield [np.round(draw.array((3, 6), np.dtype(np.float32), -1, 1, odd=False)), known(draw.random.randint(3, 7))], {}


def _blocks(draw):
    yield [_floats(draw, 2, 4, 6, 3), known([2, 3]), known([[0, 0], [0, 0]])], {}


def _unblocks(draw):
    yield [_floats(draw, 12, 2, 3, 2), known([2, 3]), known([[1, 0], [0, 2]])], {}


def _shifts(draw):
    return [([draw.array((6,), dtype, odd=False), draw.random.randint(-4, 70, 6).astype(dtype)], {}) for dtype in WHOLE]


ALL = (*FLOATS, *WHOLE)
NUMBERS = (*FLOATS[:2], np.dtype(np.int32), np.dtype(np.int64))

CASES = {
    **{op: _binary(ALL) for op in ("AddV2", "Sub", "Mul")},
    **{op: _binary(NUMBERS) for op in ("SquaredDifference", "Less", "LessEqual", "Greater", "GreaterEqual")},
    **{op: _binary(ALL) for op in ("Equal", "NotEqual")},
    **{op: _binary(ALL, odd=False) for op in ("Maximum", "Minimum")},
    **{op: _binary(FLOATS) for op in ("RealDiv", "DivNoNan", "MulNoNan", "Xdivy")},
    **{op: _binary(FLOATS[:2], 0.1, 3.0) for op in ("Xlogy", "Xlog1py", "Atan2")},
    **{op: _binary((*FLOATS[:2], *WHOLE), 1, 5, odd=False) for op in ("FloorDiv", "FloorMod")},
    "Pow": _binary([*FLOATS[:2], np.dtype(np.int32)], 0, 3, odd=False),
    **{op: _binary([np.dtype(bool)]) for op in ("LogicalAnd", "LogicalOr")},
    "LogicalNot": _unary([np.dtype(bool)]),
    **{op: _binary(WHOLE) for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")},
    "Invert": _unary(WHOLE),
    **dict.fromkeys(("LeftShift", "RightShift"), _shifts),
    **{op: _unary(ALL) for op in ("Square", "ZerosLike", "OnesLike", "Identity", "StopGradient")},
    **{op: _unary([*FLOATS, np.dtype(np.int32), np.dtype(np.int64)]) for op in ("Neg", "Abs", "Sign")},
    **{op: _unary(FLOATS) for op in (
        "Exp", "Expm1", "Tanh", "Sigmoid", "Floor", "Ceil", "Rint", "Round", "IsNan", "IsInf", "IsFinite",
        "Relu", "Relu6", "Elu", "Selu", "Softplus", "Softsign", "LeakyRelu", "Sin", "Cos")},
    **{op: _unary(FLOATS[:2]) for op in ("Tan", "Atan", "Sinh", "Cosh", "Asinh")},
    **{op: _unary(FLOATS[:2], 0.1, 4.0, odd=False) for op in ("Lgamma", "Digamma", "Erf", "Erfc")},
    **{op: _unary(FLOATS[:2], -0.9, 0.9, odd=False) for op in ("Asin", "Acos", "Atanh", "Erfinv")},
    "Acosh": _unary(FLOATS[:2], 1.1, 4.0),
    **{op: _unary(FLOATS, 0.05, 4.0) for op in ("Sqrt", "Rsqrt", "Log", "Log1p", "Reciprocal", "Inv")},
    **{op: _grad(FLOATS) for op in (
        "TanhGrad", "SigmoidGrad", "EluGrad", "SeluGrad", "SoftplusGrad", "SoftsignGrad")},
    # where the ReLU is off, TensorFlow's CPU multiplies a gradient of NaN by zero, its GPU and XLA leave it out
    **{op: _grad(FLOATS, odd=False) for op in ("ReluGrad", "Relu6Grad", "LeakyReluGrad")},
    **{op: _grad(FLOATS, 0.1, 2.0) for op in ("SqrtGrad", "RsqrtGrad", "ReciprocalGrad")},
    "InvGrad": _with(lambda d: ([d.array((2, 3), np.dtype(np.complex64), -1, 1, odd=False) for _ in range(2)], {})),
    **{op: _reduction([*FLOATS[:2], np.dtype(np.int32), np.dtype(np.int64)]) for op in ("Sum", "Prod")},
    "Mean": _reduction(FLOATS[:2]),
    **{op: _reduction([*FLOATS[:2], np.dtype(np.int32)], odd=False) for op in ("Max", "Min")},
    **{op: _reduction([np.dtype(bool)]) for op in ("All", "Any")},
    "EuclideanNorm": _reduction(FLOATS[:2], odd=False),
    "L2Loss": _unary(FLOATS[:2], odd=False),
    "AddN": lambda draw: [([[draw.array((3, 2), dtype) for _ in range(4)]], {}) for dtype in (FLOATS[0], WHOLE[0])],
    "Cast": _cast,
    "ArgMax": _arg, "ArgMin": _arg, "Cumsum": _cumulative, "Cumprod": _cumulative, "TopKV2": _top_k,
    "MatMul": _matmul, "BatchMatMulV2": _batch_matmul,
    "GatherV2": _gather, "GatherNd": _gather_nd, "ScatterNd": _scatter_nd, "StridedSlice": _strided_slice,
    "StridedSliceGrad": _strided_slice_grad, "Slice": _slice, "UnsortedSegmentSum": _segments,
    "UnsortedSegmentMax": _segments, "UnsortedSegmentMin": _segments, "UnsortedSegmentProd": _segments,
    **dict.fromkeys(("TensorScatterUpdate", "TensorScatterAdd", "TensorScatterMax"), _tensor_scatter),
    "Conv2D": _convolution, "Conv2DBackpropInput": _convolution_gradient("input"),
    "Conv2DBackpropFilter": _convolution_gradient("filter"), "DepthwiseConv2dNative": _depthwise,
    "MaxPool": _pool, "AvgPool": _pool, "AvgPoolGrad": _average_pool_grad, "MaxPoolGrad": _max_pool_grad,
    "FusedBatchNormV3": _batch_norm,
    "Softmax": _softmax, "LogSoftmax": _softmax, "SoftmaxCrossEntropyWithLogits": _cross_entropy,
    "SparseSoftmaxCrossEntropyWithLogits": _sparse_cross_entropy,
    "Select": _select, "SelectV2": _with(lambda d: ([d.array((3, 1), np.dtype(bool)), _floats(d, 4), _floats(d, 3, 4)],
                                                    {})),
    "OneHot": _one_hot, "Pad": _pad, "MirrorPad": _mirror_pad, "ConcatV2": _concat, "ClipByValue": _clip,
    "MirrorPadGrad": _mirror_pad_grad, "TensorScatterSub": _tensor_scatter, "DenseBincount": _bincounts,
    **{op: _with(lambda d: ([np.sort(d.array((2, 5), np.dtype(np.float32), odd=False)), _floats(d, 2, 3)], {}))
       for op in ("LowerBound", "UpperBound")},
    "SpaceToBatch": _with(lambda d: ([_floats(d, 2, 4, 5, 3), known([[0, 0], [1, 0]])], {"block_size": 2})),
    "BatchToSpace": _with(lambda d: ([_floats(d, 8, 2, 3, 2), known([[1, 0], [0, 1]])], {"block_size": 2})),
    "ReverseSequence": _reverse_sequence, "SpaceToBatchND": _blocks, "BatchToSpaceND": _unblocks,
    "SpaceToDepth": _with(lambda d: ([_floats(d, 2, 4, 6, 3)], {"block_size": 2})),
    "DepthToSpace": _with(lambda d: ([_floats(d, 2, 4, 6, 8)], {"block_size": 2})),
    "Transpose": _with(lambda d: ([_floats(d, 2, 3, 4), known(d.random.permutation(3))], {})),
    "Tile": _with(lambda d: ([_floats(d, 2, 3), known(d.dims(2, 0, 3))], {})),
    "ReverseV2": _with(lambda d: ([_floats(d, 2, 3, 4), known([d.one_of(0, -1), 1])], {})),
    "Reshape": _with(lambda d: ([_floats(d, 2, 3, 4), known([d.one_of(-1, 6), 4])], {}),
                     lambda d: ([_floats(d, 0, 3), known([-1, 3])], {})),
    "ExpandDims": _with(lambda d: ([_floats(d, 2, 3), known(d.one_of(0, 1, 2, -1))], {})),
    "Squeeze": _with(lambda d: ([_floats(d, 1, 3, 1)], {"squeeze_dims": d.one_of([], [0], [-1])})),
    "Pack": _with(lambda d: ([[_floats(d, 2, 3), _floats(d, 2, 3)]], {"axis": d.one_of(0, 1, -1)})),
    "Unpack": _with(lambda d: ([_floats(d, 3, 2)], {"num": 3, "axis": d.one_of(0, -2)})),
    "Split": _with(lambda d: ([known(d.one_of(1, -1)), _floats(d, 2, 6)], {"num_split": 3})),
    "SplitV": _with(lambda d: ([_floats(d, 2, 6), known([1, d.one_of(-1, 3), 2]), known(1)], {"num_split": 3})),
    "Fill": _with(lambda d: ([known([2, 3]), np.array(2.5, np.float32)], {})),
    "BroadcastTo": _with(lambda d: ([_floats(d, 3, 1), known([2, 3, 4])], {})),
    "Roll": _with(lambda d: ([_floats(d, 4, 3), np.array([d.random.randint(-3, 4)], np.int32), known([0])], {})),
    "InvertPermutation": _with(lambda d: ([d.random.permutation(6).astype(np.int32)], {})),
    "BiasAdd": _with(lambda d: ([_floats(d, 2, 3, 4), _floats(d, 4)], {})),
    "BiasAddGrad": _with(lambda d: ([d.array((2, 3, 4), np.dtype(np.float32), odd=False)], {})),
    "LRN": _with(lambda d: ([d.array((2, 3, 3, 7), np.dtype(np.float32), odd=False)], {"depth_radius": 2})),
    "Complex": _with(lambda d: ([_floats(d, 3), _floats(d, 3)], {})),
    "LinSpace": _with(lambda d: ([np.array(1, np.float32), np.array(4, np.float32), known(5)], {})),
    "Bincount": _with(lambda d: ([d.random.randint(0, 5, 9).astype(np.int32), known(6), _floats(d, 9)], {})),
    "InTopKV2": _with(lambda d: ([d.array((4, 6), np.dtype(np.float32), odd=False),
                                  d.random.randint(0, 6, 4).astype(np.int32), known(2)], {})),
    "InTopK": _with(lambda d: ([d.array((4, 6), np.dtype(np.float32), odd=False),
                                d.random.randint(-1, 7, 4).astype(np.int64)], {"k": 2})),
    "Reverse": _with(lambda d: ([_floats(d, 3, 4, 2), known(d.random.randint(0, 2, 3) > 0)], {})),
    "DataFormatDimMap": _dims_of_format,
    "DataFormatVecPermute": _permuted_to_format,
    "UniqueV2": _unique_rows,
    "UniqueWithCountsV2": _unique_rows,
    "PopulationCount": _unary(WHOLE),
    "BesselI0e": _unary(FLOATS[:2]),
    "BesselI1e": _unary(FLOATS[:2]),
    "IgammaGradA": _binary(FLOATS[:2], 0.2, 4.0, odd=False),
    "RandomGammaGrad": _binary(FLOATS[:2], 0.2, 4.0, odd=False),
    "MaxPoolWithArgmax": _pool_with_places,
    "MaxPoolGradWithArgmax": _pool_grad_with_places,
    "MaxPoolGradGrad": _max_pool_grad_grad,
    "MaxPoolGradGradV2": _max_pool_grad_grad_v2,
    "Einsum": _with(lambda d: ([[_floats(d, 2, 3)]], {"equation": "bi->bii"}),
                    lambda d: ([[_floats(d, 2, 3, 4), _floats(d, 2, 4, 5)]], {"equation": "bij,bjk->bik"})),
}  # fmt: skip
