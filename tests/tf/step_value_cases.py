"""Cases of `step_cases` for what other tables leave out: arithmetic, products, pools, batch norms, segments, shapes."""

import numpy as np
import tensorflow.compat.v1 as tf
from step_cases import FLOATS, HALF, WHOLE, known

F32, F64, I32, I64 = (np.dtype(name) for name in ("float32", "float64", "int32", "int64"))
COMPLEX = [np.dtype(np.complex64), np.dtype(np.complex128)]
EVERY = (*FLOATS, *WHOLE, *(np.dtype(name) for name in ("uint16", "uint32", "uint64")))


def _floats(draw, *dims, dtype=F32, low=-3.0, high=3.0):
    return draw.array(dims, dtype, low, high, odd=False)


def _unary(dtypes, low=-3.0, high=3.0, odd=True, **attrs):
    """Of a tensor of up to three dimensions, and of none."""

    def cases(draw):
        for dtype in dtypes:
            yield [draw.array(draw.dims(draw.random.randint(0, 4)), dtype, low, high, odd)], attrs
        yield [np.zeros((0, 2), dtypes[0])], attrs

    return cases


def _binary(dtypes, low=-3.0, high=3.0, odd=True, **attrs):
    def cases(draw):
        for dtype in dtypes:
            yield draw.pair(dtype, low, high, odd), attrs
        yield [np.zeros((0, 2), dtypes[0]), np.ones(2, dtypes[0])], attrs

    return cases


def _divided(dtypes):
    """Of both signs, by what is not zero; floats are odd on both sides."""

    def cases(draw):
        for dtype in dtypes:
            x, y = draw.array((3, 5), dtype, -100, 100), draw.array((5,), dtype, -7, 7, odd=dtype.kind not in "iu")
            whole = np.where(y == 0, np.array(3, dtype), y) if dtype.kind in "iu" else y
            if dtype.kind == "i":  # the smallest by -1 is out of range
                x = np.where(x == np.iinfo(dtype).min, np.array(-100, dtype), x)
            yield [x, whole], {}

    return cases


def _of_complex(*inputs):
    """Real, Imag and their kin: complex numbers with odd parts, and what they give."""

    def cases(draw):
        for dtype, real in zip(COMPLEX, (F32, F64)):
            x = draw.array((7,), real) + np.array(1j, dtype) * draw.array((7,), real, odd=False)
            yield [x.astype(dtype)], {"Tout": real}

    return cases


def _with(*makers):
    return lambda draw: [maker(draw) for maker in makers]


def _typed(dtypes, maker):
    """`maker` gives (inputs, attributes) of a Draw and a dtype."""
    return lambda draw: [maker(draw, dtype) for dtype in dtypes]


def _tensors(draw, dtype):
    return [[draw.array((3, 2), dtype) for _ in range(draw.one_of(1, 2, 9))]], {"shape": (3, 2)}


def _products(outputs, mixed):
    """BatchMatMul of the first version does not broadcast; the third has dtypes of its own for what it gives."""

    def cases(draw):
        for dtype in (*FLOATS, I32, I64, COMPLEX[0]):
            m, k, n = draw.dims(3, 1, 7)
            a, b = bool(draw.random.randint(2)), bool(draw.random.randint(2))
            lead = draw.one_of(((2, 1), (1, 3)), ((), (2,))) if mixed else draw.one_of(((2,), (2,)), ((2, 3), (2, 3)))
            x = _floats(draw, *lead[0], *((k, m) if a else (m, k)), dtype=dtype)
            y = _floats(draw, *lead[1], *((n, k) if b else (k, n)), dtype=dtype)
            yield [x, y], {"adj_x": a, "adj_y": b, **({"Tout": dtype} if outputs else {})}

    return cases


def _shapes(draw):
    """Two that broadcast, some of their sizes 1 in both, or 0."""
    sizes = [draw.one_of(0, 1, 2, 3) for _ in range(draw.random.randint(1, 5))]
    one = [draw.one_of(1, size, size) for size in sizes]
    other = [size if here == 1 else draw.one_of(1, size) for here, size in zip(one, sizes)]
    return known(one), known(other[draw.random.randint(len(other)) :] if 0 not in other else other)


def _two_shapes(draw):
    for _ in range(6):
        yield list(_shapes(draw)), {}
    yield [known(np.zeros(0, np.int32)), known([2, 1])], {}
    yield [known([2, 3]), known([2, 3])], {}
    yield [known([1, 1], np.int64), known([1], np.int64)], {}


# -- convolutions and pools --------------------------------------------------------------------------------------------


def _size(size, kernel, stride, padding):
    return -(-size // stride) if padding == "SAME" else -(-(size - kernel + 1) // stride)


def _convolved(draw, dims, kernel, channels, depthwise=False):
    """(x, filter, gradient, attributes) of a convolution over as many dimensions."""
    stride, padding = draw.one_of(1, 2), draw.one_of("SAME", "VALID")
    outs = [_size(size, k, stride, padding) for size, k in zip(dims, kernel)]
    last = channels[0] * channels[1] if depthwise else channels[1]
    x, w, g = (2, *dims, channels[0]), (*kernel, *channels), (2, *outs, last)
    return x, w, g, {"strides": [1, *[stride] * len(dims), 1], "padding": padding}


def _volumes(of, dtypes):
    def cases(draw):
        for dtype in dtypes:
            x, w, g, attrs = _convolved(draw, (4, 5, 6), (2, 3, 2), (2, 3))
            arrays = [_floats(draw, *dims, dtype=dtype) for dims in (x, w, g)]
            yield {"y": arrays[:2], "x": [known(x), *arrays[1:]], "w": [arrays[0], known(w), arrays[2]]}[of], attrs

    return cases


def _depthwise_gradient(of):
    def cases(draw):
        for dtype in FLOATS[:3]:
            x, w, g, attrs = _convolved(draw, (6, 5), (3, 2), (3, 2), depthwise=True)
            arrays = [_floats(draw, *dims, dtype=dtype) for dims in (x, w, g)]
            yield [known(x), *arrays[1:]] if of == "x" else [arrays[0], known(w), arrays[2]], attrs

    return cases


def _pooled(draw, rank, dtype=F32):
    """(x, what a pool gives as zeros, attributes)."""
    dims = (7, 6) if rank == 2 else (4, 5, 6)
    size, stride, padding = draw.one_of(2, 3), draw.one_of(1, 2), draw.one_of("SAME", "VALID")
    outs = [_size(n, size, stride, padding) for n in dims]
    attrs = {"ksize": [1, *[size] * rank, 1], "strides": [1, *[stride] * rank, 1], "padding": padding}
    return _floats(draw, 2, *dims, 2, dtype=dtype), (2, *outs, 2), attrs


def _volume_pool(draw):
    for dtype in (F32, F64, *HALF):
        x, _, attrs = _pooled(draw, 3, dtype)
        yield [x], attrs


def _average_volume_grad(draw):
    for dtype in (F32, F64):
        x, dims, attrs = _pooled(draw, 3, dtype)
        yield [known(x.shape), _floats(draw, *dims, dtype=dtype)], attrs


def _pools_gradient(rank, gradient_of_it=False, as_inputs=False):
    """Of what was pooled, as the kernel compares it."""

    def cases(draw):
        x, dims, attrs = _pooled(draw, rank)
        with tf.Graph().as_default(), tf.Session() as session:
            pool = tf.raw_ops.MaxPool3D if rank == 3 else tf.raw_ops.MaxPool
            y = session.run(pool(input=x, **attrs))
        g = _floats(draw, *(x.shape if gradient_of_it else dims))
        sizes = [known(attrs.pop("ksize")), known(attrs.pop("strides"))] if as_inputs else []
        yield [x, y, g, *sizes], attrs

    return cases


def _pool_v2(draw):
    for dtype in (F32, F64, I32, *HALF):
        x, _, attrs = _pooled(draw, 2, dtype)
        yield [x, known(attrs["ksize"]), known(attrs["strides"])], {"padding": attrs["padding"]}


def _lrn_grad(draw):
    x = _floats(draw, 2, 3, 3, 7)
    attrs = {"depth_radius": draw.one_of(1, 2), "bias": 1.5, "alpha": 0.3, "beta": draw.one_of(0.5, 0.75)}
    with tf.Graph().as_default(), tf.Session() as session:
        y = session.run(tf.raw_ops.LRN(input=x, **attrs))
    yield [_floats(draw, *x.shape), x, y], attrs


# -- batch norms -------------------------------------------------------------------------------------------------------


NO_IMAGES = np.zeros((0, 4, 5, 2), np.float32)


def _normalized(version):
    """In training with the batch's statistics and without; V2 and V3 take 16 bits, whose statistics are float32."""
    typed = {} if version == 1 else {"U": F32}

    def cases(draw):
        for training in (False, True):
            for dtype in (F32,) if version == 1 else (F32, *HALF):
                x = _floats(draw, 3, 4, 5, 2, dtype=dtype)
                vectors = [_floats(draw, 2, low=0.5, high=2.0) for _ in range(4)]
                given = vectors[2:]
                given = [np.zeros(0, np.float32)] * 2 if training else given
                yield [x, *vectors[:2], *given], {"is_training": training, "epsilon": 0.001, **typed}
        yield [NO_IMAGES, *vectors[:2], *given], {"is_training": True, "epsilon": 0.001, **typed}
        if version > 1:
            vectors = [_floats(draw, 2, low=0.5, high=2.0) for _ in range(4)]
            running = {"is_training": True, "exponential_avg_factor": 0.25, "U": F32}
            yield [_floats(draw, 3, 4, 5, 2), *vectors], running

    return cases


def _normalized_grad(version):
    more = [np.zeros(0, np.float32)] if version == 3 else []
    typed = {} if version == 1 else {"U": F32}

    def cases(draw):
        for training in (False, True):
            for dtype in (F32,) if version == 1 else (F32, *HALF):
                g, x = (_floats(draw, 3, 4, 5, 2, dtype=dtype) for _ in range(2))
                wide = x.astype(np.float32)
                mean, variance = wide.mean((0, 1, 2)), wide.var((0, 1, 2))
                kept = [mean, variance] if training else [_floats(draw, 2), _floats(draw, 2, low=0.5, high=2.0)]
                attrs = {"is_training": training, "epsilon": 0.001, **typed}
                yield [g, x, _floats(draw, 2, low=0.5, high=2.0), *kept, *more], attrs
        kept = [np.full(2, np.nan, np.float32)] * 2  # the statistics of no images
        yield [NO_IMAGES, NO_IMAGES, _floats(draw, 2), *kept, *more], attrs

    return cases


# -- segments and places -----------------------------------------------------------------------------------------------


def _sorted_ids(draw, size=6, most=5):
    return np.sort(draw.random.randint(0, most, size)).astype(np.int32)


def _segments(dtypes):
    """Some of which have no row."""

    def cases(draw):
        for dtype in dtypes:
            yield [draw.array((6, 2), dtype, odd=False), known(_sorted_ids(draw))], {}
        yield [_floats(draw, 3), known([1, 1, 3], np.int64)], {}

    return cases


def _sorted_gradient(draw):
    """Rows that several segments have, and that none has."""
    for dtype in (F32, F64, *HALF):
        yield [_floats(draw, 5, 3, dtype=dtype), draw.random.randint(0, 6, 6).astype(np.int32), _sorted_ids(draw),
               known(8)], {}  # fmt: skip


def _sliced_update(draw):
    x = draw.array((4, 5), F32)
    yield [x, known([1, 0]), known([4, 5]), known([2, 2]), _floats(draw, 2, 3)], {}
    yield [x, known([-1, 4]), known([-4, 0]), known([-1, -2]), _floats(draw, 3, 2)], {}
    yield [x, known([2, 0]), known([3, 0]), known([1, 1]), _floats(draw, 5)], {"shrink_axis_mask": 1, "end_mask": 2}


def _partitioned(draw):
    for dtype in (F32, I32, np.dtype(bool)):
        yield [draw.array((6, 2), dtype), draw.random.randint(0, 3, 6).astype(np.int32)], {"num_partitions": 4}
    yield [_floats(draw, 2, 3), draw.random.randint(0, 2, (2, 3)).astype(np.int32)], {"num_partitions": 2}


def _stitched(draw):
    """A place that comes twice has what comes last; places of several shapes."""
    order = draw.random.permutation(7).astype(np.int32)
    rows = [draw.array((*dims, 2), F32) for dims in ((), (2,), (2, 2))]
    yield [[known(order[0]), known(order[1:3]), known(order[3:].reshape(2, 2))], rows], {}
    yield [[known([0, 1, 2]), known([2, 0])], [draw.array((3,), I64), draw.array((2,), I64)]], {}


def _repeated(draw):
    for dtype in (F32, I32, I64, np.dtype(np.int8)):
        x = draw.random.randint(-3, 3, 9).astype(dtype)
        yield [x], {"out_idx": draw.one_of(I32, I64)}
    yield [np.zeros(0, np.float32)], {}


def _where(draw):
    for dtype in (np.dtype(bool), F32, I32, np.dtype(np.int8), COMPLEX[0]):
        x = draw.array((3, 4), dtype, -1, 1)
        yield [x], {}
    yield [draw.array((2, 3, 2), np.dtype(bool))], {}
    yield [np.zeros((0, 2), bool)], {}


def _ranges(draw):
    for dtype in (F32, F64, I32, I64):  # no other has a kernel
        step = draw.one_of(2, 3, -2) if dtype.kind == "i" else draw.one_of(0.1, 0.3, -0.7)
        start = draw.random.randint(-5, 5)
        yield [known(value, dtype) for value in (start, start + 17 * step, step)], {}
    yield [known(value) for value in (3, 3, 1)], {}
    yield [known(value, I64) for value in (2**40, 2**40 + 9, 2)], {}


# -- shapes and the like -----------------------------------------------------------------------------------------------


def _sizes(draw):
    for dtype in (I32, I64):
        yield [draw.array(draw.dims(draw.random.randint(0, 4), 0), F32)], {"out_type": dtype}


def _offsets(draw):
    axis = draw.random.randint(3)
    shapes = [[2, 3, 4] for _ in range(3)]
    for dims in shapes:
        dims[axis] = draw.random.randint(0, 5)
    return [known(axis), [known(dims) for dims in shapes]], {}


def _bits(draw):
    yield [draw.array((3, 2), F32)], {"type": I32}
    yield [draw.array((3, 2), F64)], {"type": F32}
    yield [draw.random.randint(0, 255, (3, 4)).astype(np.uint8)], {"type": I32}
    yield [draw.array((5,), np.dtype(np.int16))], {"type": np.dtype(np.float16)}


def _cumulative_log(draw):
    for dtype in (F32, F64, *HALF[:1]):
        flags = {"exclusive": bool(draw.random.randint(2)), "reverse": bool(draw.random.randint(2))}
        yield [draw.array((4, 3), dtype, -20, 20, odd=False), known(draw.one_of(0, 1, -1))], flags
    x = np.array([-np.inf, -np.inf, 1, np.inf, 2, np.nan, 3], np.float32)
    yield [x, known(0)], {"exclusive": False}


def _stateless(dtypes, bounds=None, key=False):
    """Shapes that fill no block, and one of no element."""

    def cases(draw):
        for dtype in dtypes:
            shape = known(draw.one_of([7], [3, 5], [1], [2, 3, 3]))
            seed = draw.random.randint(-(2**31), 2**31, 2)
            given = [draw.random.randint(0, 2**62, 1).astype(np.uint64),
                     draw.random.randint(0, 2**62, 2).astype(np.uint64), known(1)] if key else [seed]  # fmt: skip
            limits = [np.array(limit, dtype) for limit in bounds or ()]
            attrs = {} if bounds else {"dtype": dtype}
            yield [shape, *given, *limits], attrs
            yield [known([0, 3]), *given, *limits], attrs

    return cases


def _seeds(draw):
    yield [draw.random.randint(-(2**31), 2**31, 2).astype(np.int64)], {}
    yield [draw.random.randint(-(2**31), 2**31, 2).astype(np.int32)], {}


def _classes(draw):
    logits = np.float32([[0, -np.inf, 1, 2], [3, 1, -20, 0]])
    for dtype in (I32, I64):
        yield [logits, known(9), draw.random.randint(0, 99, 2)], {"output_dtype": dtype}
    yield [logits.astype(np.float64), known(0), draw.random.randint(0, 99, 2)], {}


def _passed_on(draw):
    for dtype in (*FLOATS, I32, np.dtype(bool), COMPLEX[0]):
        yield [draw.array((2, 3), dtype)], {}


RANDOM = {
    "StatelessRandomUniform": _stateless(FLOATS),
    "StatelessRandomNormal": _stateless(FLOATS),
    "StatelessTruncatedNormal": _stateless(FLOATS),
    "StatelessRandomUniformInt": _stateless([I32, I64], (-3, 1000)),
    "StatelessRandomUniformFullInt": _stateless([np.dtype(name) for name in ("int32", "int64", "uint32", "uint64")]),
    "StatelessRandomUniformV2": _stateless(FLOATS[1:3], key=True),
    "StatelessRandomNormalV2": _stateless(FLOATS[:2], key=True),
    "StatelessTruncatedNormalV2": _stateless(FLOATS[2:], key=True),
    "StatelessRandomUniformIntV2": _stateless([I32, I64], (-3, 1000), key=True),
    "StatelessRandomUniformFullIntV2": _stateless([np.dtype(n) for n in ("int32", "int64", "uint32", "uint64")],
                                                  key=True),
    "StatelessRandomGetKeyCounter": _seeds,
    "StatelessRandomGetKeyCounterAlg": _seeds,
    "StatelessRandomGetAlg": _with(lambda d: ([], {})),
    "StatelessMultinomial": _classes,
}  # fmt: skip

VALUES = {
    **RANDOM,
    "Add": _binary((*EVERY, *COMPLEX)),
    "AccumulateNV2": _typed((*FLOATS, I32), _tensors),
    "Angle": _of_complex(),
    "ApproximateEqual": _typed((F32, F64, I32, *HALF), lambda d, t: ([d.array((3, 4), t), d.array((3, 4), t)],
                                                                    {"tolerance": 0.5})),
    "AvgPool3D": _volume_pool,
    "AvgPool3DGrad": _average_volume_grad,
    "BatchMatMul": _products(outputs=False, mixed=False),
    "BatchMatMulV3": _products(outputs=True, mixed=True),
    "Betainc": _typed((F32, F64), lambda d, t: ([_floats(d, 3, 4, dtype=t, low=0.1, high=20),
                                                _floats(d, 3, 4, dtype=t, low=0.1, high=20),
                                                _floats(d, 3, 4, dtype=t, low=0, high=1)], {})),
    "BiasAddV1": _typed((F32, F64, I32, *HALF), lambda d, t: ([d.array((2, 3, 4), t), d.array((4,), t)], {})),
    "Bitcast": _bits,
    "BroadcastArgs": _two_shapes,
    "BroadcastGradientArgs": _two_shapes,
    "ComplexAbs": _of_complex(),
    "Concat": _typed((F32, np.dtype(bool), np.dtype(np.int8)),
                    lambda d, t: ([known(d.one_of(0, 1)), [d.array((2, 3), t), d.array((2, 3), t)]], {})),
    "ConcatOffset": _with(_offsets),
    "ConjugateTranspose": _typed((COMPLEX[0], F32), lambda d, t: ([d.array((2, 3, 4), t),
                                                                  known(d.random.permutation(3))], {})),
    "Conv3D": _volumes("y", (F32, F64, *HALF[:1])),
    "Conv3DBackpropInputV2": _volumes("x", (F32, F64)),
    "Conv3DBackpropFilterV2": _volumes("w", (F32, F64)),
    "CheckNumerics": _typed(FLOATS, lambda d, t: ([_floats(d, 3, dtype=t)], {"message": "numbers"})),
    "CheckNumericsV2": _typed(FLOATS, lambda d, t: ([_floats(d, 3, dtype=t)], {"message": "numbers"})),
    "Cross": _typed((*FLOATS, *WHOLE), lambda d, t: ([_floats(d, 4, 3, dtype=t), _floats(d, 4, 3, dtype=t)], {})),
    "CumulativeLogsumexp": _cumulative_log,
    "DebugGradientIdentity": _passed_on,
    "DepthwiseConv2dNativeBackpropInput": _depthwise_gradient("x"),
    "DepthwiseConv2dNativeBackpropFilter": _depthwise_gradient("w"),
    "Div": _divided(EVERY),
    "DynamicPartition": _partitioned,
    "DynamicStitch": _stitched,
    "Empty": _with(lambda d: ([known([2, 3])], {"dtype": F32, "init": True})),
    "EnsureShape": _with(lambda d: ([_floats(d, 2, 3)], {"shape": (-1, 3)})),
    **{"FusedBatchNorm" + name: _normalized(version) for version, name in enumerate(("", "V2"), 1)},
    **{"FusedBatchNormGrad" + name: _normalized_grad(version) for version, name in enumerate(("", "V2", "V3"), 1)},
    "Gather": _typed((F32, I64, np.dtype(bool)),
                    lambda d, t: ([d.array((5, 2), t), d.random.randint(0, 5, (2, 3)).astype(np.int32)], {})),
    "IdentityN": _with(lambda d: ([[d.array((2, 3), F32), d.array((4,), I32)]], {})),
    "Igamma": _binary((F32, F64), 0.1, 20, odd=False),
    "Igammac": _binary((F32, F64), 0.1, 20, odd=False),
    "Imag": _of_complex(),
    "LRNGrad": _lrn_grad,
    "MaxPool3D": _volume_pool,
    "MaxPool3DGrad": _pools_gradient(3),
    "MaxPool3DGradGrad": _pools_gradient(3, gradient_of_it=True),
    "MaxPoolGradV2": _pools_gradient(2, as_inputs=True),
    "MaxPoolV2": _pool_v2,
    "Mod": _divided((*FLOATS, I32, I64)),
    "Ndtri": _unary((F32, F64), 0.001, 0.999),
    "NextAfter": _binary((F32, F64)),
    "PadV2": _typed((F32, I32, np.dtype(np.int8)),
                   lambda d, t: ([d.array((2, 3), t), known(d.random.randint(0, 3, (2, 2))), np.array(-1, t)], {})),
    "ParallelConcat": _with(lambda d: ([[_floats(d, 1, 3), _floats(d, 1, 3)]], {"shape": (2, 3)})),
    "ParallelDynamicStitch": _with(lambda d: ([[known([2, 0]), known([1])],
                                               [d.array((2, 3), F32), d.array((1, 3), F32)]], {})),
    "PlaceholderWithDefault": _with(lambda d: ([_floats(d, 2, 3)], {"shape": (2, 3)})),
    "Polygamma": _typed((F32, F64), lambda d, t: ([d.random.randint(0, 4, 6).astype(t),
                                                   _floats(d, 6, dtype=t, low=0.2)], {})),
    "PreventGradient": _passed_on,
    "Range": _ranges,
    "Rank": _unary((F32, I32)),
    "Real": _of_complex(),
    "ScatterNdNonAliasingAdd": _typed((F32, F64, I32, *HALF), lambda d, t: (
        [d.array((4, 2), t), d.random.randint(0, 4, (6, 1)).astype(np.int32), _floats(d, 6, 2, dtype=t)], {})),
    "SegmentMax": _segments((F32, F64, I32, np.dtype(np.uint8), *HALF)),
    "SegmentMin": _segments((F32, F64, I32, np.dtype(np.uint8), *HALF)),
    "SegmentMean": _segments((F32, F64, I32, np.dtype(np.uint8))),
    "SegmentProd": _segments((F32, F64, I32)),
    "SegmentSum": _segments((F32, F64, I32, np.dtype(np.int8))),
    "Shape": _sizes,
    "ShapeN": _typed((I32, I64), lambda d, t: ([[d.array((2, 0), F32), d.array((), F32)]], {"out_type": t})),
    "Size": _sizes,
    "Snapshot": _passed_on,
    **{"SparseSegment%sGradV2" % kind: _sorted_gradient for kind in ("Sum", "Mean", "SqrtN")},
    "TensorScatterMin": _typed((F32, I32, *HALF), lambda d, t: (
        [d.array((4, 2), t), d.random.randint(0, 4, (6, 1)).astype(np.int32), _floats(d, 6, 2, dtype=t)], {})),
    "TensorStridedSliceUpdate": _sliced_update,
    "TruncateDiv": _divided((F32, F64, I32, I64)),
    "TruncateMod": _divided((*FLOATS, I32, I64)),
    "Unique": _repeated,
    "UniqueWithCounts": _repeated,
    "Where": _where,
    "Zeta": _binary((F32, F64), 1.1, 10, odd=False),
}  # fmt: skip
