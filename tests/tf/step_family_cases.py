"""Cases of `step_cases` for rarer families: linear algebra, sparse tensors, images, recurrent cells, CTC, FakeQuant."""

import numpy as np
import tensorflow.compat.v1 as tf
from step_cases import BFLOAT16, Draw, known  # noqa: F401

F32, I32, I64 = np.dtype(np.float32), np.dtype(np.int32), np.dtype(np.int64)


def _floats(draw, *dims, dtype=F32, low=-3.0, high=3.0):
    return draw.array(dims, dtype, low, high, odd=False)


def _with(*makes):
    return lambda draw: [make(draw) for make in makes]


def _positive(draw, *lead, size=3):
    x = _floats(draw, *lead, size, size, low=-1, high=1)
    return (x @ np.swapaxes(x, -1, -2) + np.eye(size, dtype=np.float32)).astype(np.float32)


def _scalar(value, dtype=np.int32):
    return np.array(value, dtype)


def _spectrum(draw, *dims):
    """What RFFT gives of random numbers, of as many dimensions."""
    return np.fft.rfftn(_floats(draw, *dims)).astype(np.complex64)


def _triangular(draw):
    matrix = _positive(draw, 2)
    return [matrix, _floats(draw, 2, 3, 2)], {
        "lower": bool(draw.random.randint(2)),
        "adjoint": bool(draw.random.randint(2)),
    }


# -- diagonals ---------------------------------------------------------------------------------------------------------


def _align(draw):
    return {"align": draw.one_of("LEFT_RIGHT", "RIGHT_LEFT", "LEFT_LEFT", "RIGHT_RIGHT")}


def _three_diagonals(draw):
    diagonals = _floats(draw, 2, 3, 5)
    diagonals[:, 1] += np.sign(diagonals[:, 1]) * 7  # else it matters whether rows are exchanged
    return [diagonals, _floats(draw, 2, 5, 2)], {}


def _product_of_diagonals(draw):
    return [*(_floats(draw, 2, 1, 5) for _ in range(3)), _floats(draw, 2, 5, 3)], {}


def _band(draw):
    """From the lowest to the highest of the diagonals of matrices of [3, 4]."""
    return sorted(draw.random.randint(-2, 4, 2).tolist())


def _packed_diagonals(draw, low, high):
    room = min(3 + min(0, high), 4 - max(0, low))
    return _floats(draw, 2, *([high - low + 1] if low < high else []), room)


def _diag_v2(draw):
    band = _band(draw)
    return [_packed_diagonals(draw, *band), known(band), known(3), known(4), known(0.5, F32)], {}


def _diag_v3(draw):
    inputs, _ = _diag_v2(draw)
    sizes = [(3, 4)]
    low, high = inputs[1].value.tolist()
    room = inputs[0].shape[-1]
    sizes += [(3, -1)] if room + max(0, low) == 4 else []
    sizes += [(-1, 4)] if room - min(0, high) == 3 else []
    height, width = draw.one_of(*sizes)
    return [*inputs[:2], known(height), known(width), inputs[4]], _align(draw)


def _set_diag(draw, attrs):
    band = _band(draw)
    return [_floats(draw, 2, 3, 4), _packed_diagonals(draw, *band), known(band)], attrs


# -- sparse ------------------------------------------------------------------------------------------------------------


def _indices(draw, count, rows, columns):
    flat = np.sort(draw.random.permutation(rows * columns)[:count])
    return np.stack(np.unravel_index(flat, (rows, columns)), -1).astype(np.int64)


def _sparse_product(draw):
    a, b = bool(draw.random.randint(2)), bool(draw.random.randint(2))
    right = (3 if a else 5, 4)
    values = [
        _indices(draw, 6, 3, 5),
        _floats(draw, 6),
        known([3, 5], np.int64),
        _floats(draw, *right[:: -1 if b else 1]),
    ]
    return values, {"adjoint_a": a, "adjoint_b": b}


def _sparse(draw, *others):
    return [_indices(draw, 6, 3, 5), _floats(draw, 6), known([3, 5], np.int64), *others], {}


def _summed(draw, least):
    """Two in order, some of whose elements stand in one place; below `least` a sum is left out."""
    inputs, many = _sparse(draw)[0], draw.one_of(0, 9)
    return [*inputs, _indices(draw, many, 3, 5), _floats(draw, many), inputs[2], known(least, F32)], {}


def _summed_grad(draw):
    parts = [_indices(draw, 6, 3, 5), _indices(draw, 7, 3, 5)]
    places = np.unique(np.concatenate(parts), axis=0)
    return [_floats(draw, len(places)), *parts, places], {}


def _boxed(draw):
    start, size = ([draw.random.randint(0, 4), draw.random.randint(0, 6)] for _ in range(2))
    return [*_sparse(draw)[0][:2], known([3, 5], np.int64), known(start, np.int64), known(size, np.int64)], {}


def _boxed_grad(draw):
    """Of a slice whose first element stands at [1, 1]."""
    indices = _indices(draw, 7, 3, 5)
    taken = indices[(indices >= 1).all(1) & (indices[:, 1] < 4)] - 1
    return [_floats(draw, len(taken)), indices, known([1, 1], np.int64), taken], {}


def _in_parts(draw):
    axis, count = draw.one_of((0, 2), (1, 2), (1, 3), (1, 1))
    return [known(axis, np.int64), *_sparse(draw)[0][:2], known([3, 5], np.int64)], {"num_split": count}


def _behind(draw):
    axis, shapes = draw.one_of((0, [(3, 5), (2, 5)]), (1, [(3, 5), (3, 2)]), (-1, [(3, 5), (3, 4)]))
    counts = [draw.one_of(0, 4), 6]
    indices = [_indices(draw, count, *shape) for count, shape in zip(counts, shapes)]
    values = [_floats(draw, count) for count in counts]
    return [indices, values, [known(shape, np.int64) for shape in shapes]], {"concat_dim": axis}


def _mostly_zeros(draw):
    """Attribute `a_is_sparse` is a hint; the dtypes of the two may differ."""
    a, b = bool(draw.random.randint(2)), bool(draw.random.randint(2))
    kinds = [draw.one_of(F32, BFLOAT16) for _ in range(2)]
    one, other = (
        _floats(draw, *dims, dtype=kind)
        for dims, kind in zip(((4, 3) if a else (3, 4), (5, 4) if b else (4, 5)), kinds)
    )
    one[one < 1] = 0
    return [one, other], {"transpose_a": a, "transpose_b": b, "a_is_sparse": True}


def _segments(draw):
    ids = np.sort(draw.random.randint(0, 4, 6)).astype(np.int32)
    return [_floats(draw, 5, 3), draw.random.randint(0, 5, 6).astype(np.int32), known(ids)], {}


def _more_segments(draw):
    values, attrs = _segments(draw)
    return [*values[:2], values[2].value, known(6)], attrs


def _rows_with_gaps(draw):
    """Indices by row, in no order within the table, where rows lack elements."""
    count = draw.random.randint(1, 6)
    return [_indices(draw, count, 5, 4), _floats(draw, count), known([5, 4], np.int64), _scalar(0.5, F32)], {}


def _segments_grad(draw):
    ids = np.sort(draw.random.randint(0, 4, 6)).astype(np.int32)
    return [_floats(draw, 4, 3), draw.random.randint(0, 5, 6).astype(np.int32), ids, known(5)], {}


# -- images ------------------------------------------------------------------------------------------------------------

WAYS = [{"align_corners": a, "half_pixel_centers": h} for a, h in ((False, False), (True, False), (False, True))]


def _resized(draw):
    return [([_floats(draw, 2, 4, 5, 2), known([7, 3])], way) for way in WAYS]


def _resized_grad(draw):
    return [([_floats(draw, 2, 7, 3, 2), known([4, 5])], way) for way in WAYS]


def _bilinear_grad(draw):
    return [([_floats(draw, 2, 7, 3, 2), _floats(draw, 2, 4, 5, 2)], way) for way in WAYS]


def _boxes(draw):
    corners = np.sort(_floats(draw, 3, 2, 2, low=-0.2, high=1.2), 1).reshape(3, 4)
    return corners, draw.random.randint(0, 2, 3).astype(np.int32)


def _crop(draw):
    boxes, numbers = _boxes(draw)
    return [_floats(draw, 2, 5, 6, 2), boxes, numbers, known([3, 4])], {"method": draw.one_of("bilinear", "nearest"),
                                                                         "extrapolation_value": 0.5}  # fmt: skip


def _crop_image(draw):
    boxes, numbers = _boxes(draw)
    return [_floats(draw, 3, 3, 4, 2), boxes, numbers, known([2, 5, 6, 2])], {"T": F32}


def _crop_boxes(draw):
    boxes, numbers = _boxes(draw)
    return [_floats(draw, 3, 3, 4, 2), _floats(draw, 2, 5, 6, 2), boxes, numbers], {}


def _colors(draw, *others):
    """Some are gray, and some black."""
    image = draw.random.uniform(0, 1, (2, 4, 3, 3)).astype(np.float32)
    image[0, 0], image[0, 1, 0] = image[0, 0, :, :1], 0
    return [image, *others], {}


def _overlapping(draw, most=4):
    boxes = draw.random.uniform(0, 1, (9, 2, 2)).astype(np.float32)
    boxes[:, 1] += 0.3 * (draw.random.rand(9, 1) > 0.2)
    return [boxes.reshape(9, 4), draw.random.uniform(0, 1, 9).astype(np.float32), known(most)]


def _suppressed(draw):
    yield [*_overlapping(draw), _scalar(0.3, F32), _scalar(0.2, F32)], {}
    yield [*_overlapping(draw, 20), _scalar(0.6, F32), _scalar(-1, F32)], {}


def _suppressed_and_padded(draw):
    for inputs, _ in _suppressed(draw):
        yield inputs, {"pad_to_max_output_size": bool(draw.random.randint(2))}


def _patches(draw):
    sizes = {"ksizes": [1, 3, 2, 1], "strides": [1, 2, 1, 1], "rates": [1, 1, 2, 1]}
    return [([_floats(draw, 2, 7, 6, 3)], {**sizes, "padding": padding}) for padding in ("SAME", "VALID")]


# -- recurrent ---------------------------------------------------------------------------------------------------------

BATCH, INPUT, SIZE, TIME = 2, 3, 4, 5


def _weights(draw):
    return [_floats(draw, INPUT + SIZE, 4 * SIZE, low=-1, high=1), *(_floats(draw, SIZE) for _ in range(3)),
            _floats(draw, 4 * SIZE)]  # fmt: skip


def _state(draw):
    return [_floats(draw, BATCH, SIZE, low=-1, high=1) for _ in range(2)]


def _lstm_attrs(draw):
    return {"use_peephole": bool(draw.random.randint(2)), "cell_clip": 2.5}


def _cell(draw):
    return [_floats(draw, BATCH, INPUT), *_state(draw), *_weights(draw)], {**_lstm_attrs(draw), "forget_bias": 0.5}


def _gates(draw, *lead):
    return [_floats(draw, *lead, BATCH, SIZE, low=0.1, high=0.9) for _ in range(7)]


def _cell_grad(draw):
    inputs = [_floats(draw, BATCH, INPUT), *_state(draw), *_weights(draw), *_gates(draw)[:6]]
    return [*inputs, *_state(draw)], {"use_peephole": bool(draw.random.randint(2))}


def _block(draw, most=TIME):
    inputs = [_scalar(most, np.int64), _floats(draw, TIME, BATCH, INPUT), *_state(draw), *_weights(draw)]
    return inputs, _lstm_attrs(draw)


def _block_grad(version):
    """The gradient takes what the forward pass gave, clipped or not."""
    layer = {1: tf.raw_ops.BlockLSTM, 2: tf.raw_ops.BlockLSTMV2}[version]

    def case(draw):
        inputs, attrs = _block(draw, 3)
        names = ("seq_len_max", "x", "cs_prev", "h_prev", "w", "wci", "wcf", "wco", "b")
        with tf.Graph().as_default(), tf.Session() as session:
            outputs = session.run(list(layer(**dict(zip(names, inputs)), **attrs)))
        gradients = [_floats(draw, TIME, BATCH, SIZE) for _ in range(2)]
        return [*inputs, *outputs, *gradients], {"use_peephole": attrs["use_peephole"]}

    return case


def _gru(draw):
    weights = [_floats(draw, INPUT + SIZE, n * SIZE, low=-1, high=1) for n in (2, 1)]
    return [_floats(draw, BATCH, INPUT), _state(draw)[0], *weights, _floats(draw, 2 * SIZE), _floats(draw, SIZE)], {}


def _gru_grad(draw):
    inputs, _ = _gru(draw)
    return [*inputs, *_gates(draw)[:3], _state(draw)[0]], {}


# -- CTC, FakeQuant ----------------------------------------------------------------------------------------------------


def _ctc(draw):
    """Three rows, with gaps: labels that repeat, one alone, and as many as there are steps."""
    indices = np.int64([[0, 0], [0, 2], [0, 3], [1, 1], [2, 0], [2, 1], [2, 2], [2, 3]])
    values = np.int32([1, 1, 2, 3, 3, 1, 2, 1])
    lengths = np.int32([6, 4, 4])
    return [_floats(draw, 6, 3, 5), indices, values, lengths], {"ctc_merge_repeated": bool(draw.random.randint(4))}


def _collapsed(draw):
    inputs, attrs = _ctc(draw)
    return inputs, {**attrs, "preprocess_collapse_repeated": True}


def _too_long(draw):
    """Rows that are left out, whose labels take too long before equal ones are one, or blanks at the end are none."""
    indices = np.int64([[0, n] for n in range(5)] + [[1, 0], [1, 1], [1, 2], [2, 0], [2, 1], [2, 2]])
    values = np.int32([1, 1, 1, 1, 2, 3, 4, 4, 2, 4, 4])
    attrs = {"preprocess_collapse_repeated": bool(draw.random.randint(2)), "ignore_longer_outputs_than_inputs": True}
    return [_floats(draw, 6, 3, 5), indices, values, np.int32([4, 6, 2])], attrs


def _decoded(draw):
    attrs = {"merge_repeated": bool(draw.random.randint(2)), "blank_index": draw.one_of(-1, 0, 2)}
    return [_floats(draw, 6, 3, 4), np.int32([6, 4, 5])], attrs


def _symmetric(draw, *others):
    """With limits that are given or those of the numbers, of all or by the last dimension."""
    attrs = {"signed_input": bool(draw.random.randint(2)), "narrow_range": bool(draw.random.randint(2))}
    for given in (False, True):
        yield [_floats(draw, 4, 3), _scalar(-1.3, F32), _scalar(1.9, F32), *others], {**attrs, "range_given": given}
    if others:  # kernels of the other versions take one range for all
        limits = _floats(draw, 3, low=-2, high=-0.1), _floats(draw, 3, low=0.1, high=2)
        yield [_floats(draw, 4, 3), *limits, *others], {**attrs, "range_given": True, "axis": 1}


def _rounded(draw):
    mode = {"num_bits": draw.one_of(4, 8), "round_mode": draw.one_of("HALF_TO_EVEN", "HALF_UP")}
    return [(inputs, {**attrs, **mode}) for inputs, attrs in _symmetric(draw)]


def _symmetric_grad(draw):
    yield [_floats(draw, 4, 3), _floats(draw, 4, 3), _scalar(-1.3, F32), _scalar(1.9, F32)], {}
    limits = _floats(draw, 3, low=-2, high=-0.1), _floats(draw, 3, low=0.1, high=2)
    yield [_floats(draw, 4, 3), _floats(draw, 4, 3), *limits], {"axis": 1}


def _quantized(draw, *inputs):
    bounds = [_scalar(draw.random.uniform(-2, -0.1), F32), _scalar(draw.random.uniform(0.1, 2), F32)]
    return [*inputs, *bounds], {"num_bits": draw.one_of(4, 8), "narrow_range": bool(draw.random.randint(2))}


def _by_channel(draw, *inputs):
    _, attrs = _quantized(draw)
    return [*inputs, _floats(draw, 3, low=-2, high=-0.1), _floats(draw, 3, low=0.1, high=2)], attrs


def _dilated(draw, *more):
    """Images and a filter; `more`: make the gradient of what it gives."""
    attrs = {"strides": [1, *draw.one_of((1, 1), (2, 1)), 1], "rates": [1, *draw.one_of((1, 1), (1, 2)), 1]}
    for padding in ("SAME", "VALID"):
        x, kernel = _floats(draw, 2, 6, 5, 2), _floats(draw, 3, 2, 2)
        x = np.round(x) if more else x  # several sums of a window are the largest
        kernel = np.round(kernel) if more else kernel
        spans = [(size - 1) * rate + 1 for size, rate in zip((3, 2), attrs["rates"][1:3])]
        cut = [0, 0] if padding == "SAME" else [span - 1 for span in spans]
        outs = [-(-(size - less) // stride) for size, less, stride in zip((6, 5), cut, attrs["strides"][1:3])]
        yield [x, kernel, *(_floats(draw, 2, *outs, 2) for _ in more)], {**attrs, "padding": padding}


def _sets(draw):
    lead = draw.one_of((1,), (2,), (2, 3))
    x, y = (known(draw.random.randint(0, 5, (*lead, draw.random.randint(0, 5)))) for _ in range(2))
    return [x, y], {"set_operation": draw.one_of("a-b", "b-a", "intersection", "union")}


def _projected(draw, *fill):
    modes = ("CONSTANT", "REFLECT", "WRAP", "NEAREST")
    for mode in modes if fill else modes[:3]:
        moved = np.float32([1, 0, 0, 0, 1, 0, 0, 0]) + _floats(draw, draw.one_of(1, 2), 8) * np.float32(0.2)
        moved[:, [2, 5]] *= 15
        moved[:, 6:] *= np.float32(0.1)
        attrs = {"interpolation": draw.one_of("BILINEAR", "NEAREST"), "fill_mode": mode}
        yield [_floats(draw, 2, 4, 5, 2), moved, known([draw.one_of(4, 3), 6]), *fill], attrs


FAMILIES = {
    "Dilation2D": _dilated,
    "Dilation2DBackpropInput": lambda d: _dilated(d, "gradient"),
    "Dilation2DBackpropFilter": lambda d: _dilated(d, "gradient"),
    "ImageProjectiveTransformV2": _projected,
    "ImageProjectiveTransformV3": lambda d: _projected(d, _scalar(0.7, F32)),
    "MatrixBandPart": _with(
        lambda d: ([_floats(d, 2, 4, 5), _scalar(d.random.randint(-1, 3)), known(d.random.randint(-1, 3))], {})
    ),
    "MatrixDiag": _with(lambda d: ([_floats(d, 2, 3)], {})),
    "MatrixDiagV2": _with(_diag_v2),
    "MatrixDiagV3": _with(
        lambda d: ([_floats(d, 2, 3), known(d.one_of(0, 1, -2)), known(-1), known(-1), known(0.5, F32)], {}), _diag_v3
    ),
    "MatrixDiagPart": _with(lambda d: ([_floats(d, 2, 3, 4)], {})),
    "MatrixDiagPartV2": _with(lambda d: ([_floats(d, 2, 3, 4), known(_band(d)), known(0.5, F32)], {})),
    "MatrixDiagPartV3": _with(
        lambda d: ([_floats(d, 2, 3, 4), known(d.one_of(0, 1, -1)), known(0.5, F32)], {}),
        lambda d: ([_floats(d, 2, 3, 4), known(_band(d)), known(0.5, F32)], _align(d)),
    ),
    "MatrixSetDiag": _with(lambda d: ([_floats(d, 2, 3, 4), _floats(d, 2, 3)], {})),
    "MatrixSetDiagV2": _with(lambda d: _set_diag(d, {})),
    "MatrixSetDiagV3": _with(lambda d: _set_diag(d, _align(d))),
    "Diag": _with(lambda d: ([_floats(d, 2, 3)], {})),
    "DiagPart": _with(lambda d: ([_floats(d, 2, 3, 2, 3)], {})),
    "Cholesky": _with(lambda d: ([_positive(d, 2)], {})),
    "CholeskyGrad": _with(lambda d: ([np.linalg.cholesky(_positive(d, 2)), np.tril(_floats(d, 2, 3, 3))], {})),
    "MatrixInverse": _with(lambda d: ([_positive(d, 2)], {"adjoint": bool(d.random.randint(2))})),
    "MatrixSolve": _with(lambda d: ([_positive(d, 2), _floats(d, 2, 3, 2)], {"adjoint": bool(d.random.randint(2))})),
    "MatrixTriangularSolve": _with(_triangular),
    "MatrixDeterminant": _with(lambda d: ([_positive(d, 2)], {})),
    "LogMatrixDeterminant": _with(lambda d: ([_positive(d, 2)], {})),
    "Svd": _with(lambda d: ([_floats(d, 2, 3, 4)], {"compute_uv": False})),
    "SelfAdjointEigV2": _with(lambda d: ([_positive(d, 2)], {"compute_v": False})),
    "Qr": _with(lambda d: ([_floats(d, 2, *d.one_of((3, 4), (4, 3)))], {"full_matrices": bool(d.random.randint(2))})),
    **{
        op: _with(lambda d: ([_floats(d, 3, 2, 6, 5).astype(np.complex64)], {}))
        for op in ("FFT2D", "FFT3D", "IFFT", "IFFT2D", "IFFT3D")
    },
    "RFFT2D": _with(lambda d: ([_floats(d, 2, 4, 6), known([d.one_of(3, 4), d.one_of(5, 6)])], {})),
    "RFFT3D": _with(lambda d: ([_floats(d, 3, 4, 6), known([3, d.one_of(3, 4), d.one_of(5, 6)])], {})),
    "IRFFT2D": _with(lambda d: ([_spectrum(d, 2, 4, 6), known([4, d.one_of(5, 6)])], {})),
    "IRFFT3D": _with(lambda d: ([_spectrum(d, 2, 4, 6), known([2, 4, d.one_of(5, 6)])], {})),
    "FFT": _with(lambda d: ([_floats(d, 2, 6).astype(np.complex64)], {})),
    "Conj": _with(  # of constants
        lambda d: ([known(1.5 - 2j, np.complex64)], {}), lambda d: ([known([1j, 2.5], np.complex128)], {})
    ),
    "RFFT": _with(lambda d: ([_floats(d, 2, 6), known([5])], {})),
    "IRFFT": _with(lambda d: ([_floats(d, 2, 4).astype(np.complex64), known([6])], {})),
    "SparseTensorDenseMatMul": _with(_sparse_product),
    "SparseToDense": _with(
        lambda d: ([_indices(d, 4, 3, 5), known([3, 5], np.int64), _floats(d, 4), _scalar(0.5, F32)], {}),
        lambda d: ([np.int32([1, 3]), known([5]), _scalar(2, F32), _scalar(0.5, F32)], {}),
    ),
    "SparseReduceSum": _with(
        lambda d: (
            [_indices(d, 6, 3, 5), _floats(d, 6), known([3, 5], np.int64), known([d.one_of(0, -1)])],
            {"keep_dims": bool(d.random.randint(2))},
        )
    ),
    "SparseReduceMax": _with(
        lambda d: (
            [_indices(d, 6, 3, 5), _floats(d, 6), known([3, 5], np.int64), known(d.one_of([0], [-1], [0, 1]))],
            {"keep_dims": bool(d.random.randint(2))},
        )
    ),
    "SparseSlice": _with(_boxed),
    "SparseSliceGrad": _with(_boxed_grad),
    "SparseSplit": _with(_in_parts),
    "SparseConcat": _with(_behind),
    "SparseReorder": _with(
        lambda d: ([_indices(d, 6, 3, 5)[d.random.permutation(6)], _floats(d, 6), known([3, 5], np.int64)], {})
    ),
    "SparseReshape": _with(
        lambda d: (
            [_indices(d, 6, 4, 6), known([4, 6], np.int64), known(d.one_of([3, -1], [24], [2, 3, 4]), np.int64)],
            {},
        )
    ),
    "SparseAdd": _with(lambda d: _summed(d, 0), lambda d: _summed(d, 0.7)),
    "SparseAddGrad": _with(_summed_grad),
    "DenseToDenseSetOperation": _with(_sets),
    "ListDiff": _with(lambda d: ([known(d.random.randint(0, 9, 6)), known(d.random.randint(0, 9, 4))], {})),
    "Bucketize": _with(lambda d: ([_floats(d, 9)], {"boundaries": [-1.0, 0.5, 2.0]})),
    **dict.fromkeys(("SparseSegmentSum", "SparseSegmentMean", "SparseSegmentSqrtN"), _with(_segments)),
    **dict.fromkeys(
        ("SparseSegmentSumWithNumSegments", "SparseSegmentMeanWithNumSegments", "SparseSegmentSqrtNWithNumSegments"),
        _with(_more_segments),
    ),
    **dict.fromkeys(("SparseSegmentSumGrad", "SparseSegmentMeanGrad", "SparseSegmentSqrtNGrad"), _with(_segments_grad)),
    "SparseMatMul": _with(_mostly_zeros),
    **dict.fromkeys(
        ("SparseDenseCwiseAdd", "SparseDenseCwiseMul"),
        _with(lambda d: _sparse(d, _floats(d, *d.one_of((3, 5), (5,), (3, 1))))),
    ),
    "SparseDenseCwiseDiv": _with(lambda d: _sparse(d, _floats(d, 3, 5, low=1))),
    "SparseTensorDenseAdd": _with(lambda d: _sparse(d, _floats(d, 3, 5))),
    "SparseSoftmax": _with(_sparse),
    "ResizeNearestNeighbor": _resized,
    "ResizeBilinear": _resized,
    "ResizeBicubic": _resized,
    "ResizeBicubicGrad": _bilinear_grad,
    "ResizeNearestNeighborGrad": _resized_grad,
    "ResizeBilinearGrad": _bilinear_grad,
    "CropAndResize": _with(_crop),
    "CropAndResizeGradImage": _with(_crop_image),
    "CropAndResizeGradBoxes": _with(_crop_boxes),
    "AdjustContrastv2": _with(lambda d: ([_floats(d, 2, 3, 4, 3), _scalar(1.7, F32)], {})),
    "ExtractImagePatches": _patches,
    "LSTMBlockCell": _with(_cell),
    "LSTMBlockCellGrad": _with(_cell_grad),
    "BlockLSTM": _with(_block),
    "BlockLSTMV2": _with(lambda d: _block(d, 3)),
    "BlockLSTMGrad": _with(_block_grad(1)),
    "BlockLSTMGradV2": _with(_block_grad(2)),
    "GRUBlockCell": _with(_gru),
    "GRUBlockCellGrad": _with(_gru_grad),
    "TridiagonalSolve": _with(_three_diagonals),
    "TridiagonalMatMul": _with(_product_of_diagonals),
    "SparseFillEmptyRows": _with(_rows_with_gaps),
    "SparseFillEmptyRowsGrad": _with(lambda d: ([np.int64([0, 2, 3, 5]), _floats(d, 7)], {})),
    "RGBToHSV": _with(_colors),
    "HSVToRGB": _with(_colors),
    "AdjustHue": _with(lambda d: _colors(d, _scalar(d.random.uniform(-1, 1), F32))),
    "AdjustSaturation": _with(lambda d: _colors(d, _scalar(d.random.uniform(0, 2), F32))),
    "NonMaxSuppression": _with(lambda d: (_overlapping(d), {"iou_threshold": 0.3})),
    "NonMaxSuppressionV2": _with(lambda d: ([*_overlapping(d), _scalar(0.3, F32)], {})),
    "NonMaxSuppressionV3": _suppressed,
    "NonMaxSuppressionV4": _suppressed_and_padded,
    "CTCGreedyDecoder": _with(_decoded),
    "QuantizeAndDequantizeV2": _rounded,
    "QuantizeAndDequantizeV3": lambda d: _symmetric(d, known(d.one_of(4, 8))),
    "QuantizeAndDequantizeV4": _rounded,
    "QuantizeAndDequantizeV4Grad": _symmetric_grad,
    "CTCLoss": _with(_ctc, _collapsed, _too_long),  # of CTCLossV2, whose blank comes first, there is no kernel for CPUs
    "FakeQuantWithMinMaxArgs": _with(
        lambda d: ([_floats(d, 9)], {"min": -1.3, "max": 1.7, "num_bits": d.one_of(4, 8)})
    ),
    "FakeQuantWithMinMaxArgsGradient": _with(lambda d: ([_floats(d, 9), _floats(d, 9)], {"min": -1.3, "max": 1.7})),
    "FakeQuantWithMinMaxVars": _with(lambda d: _quantized(d, _floats(d, 9))),
    "FakeQuantWithMinMaxVarsGradient": _with(lambda d: _quantized(d, _floats(d, 9), _floats(d, 9))),
    "FakeQuantWithMinMaxVarsPerChannel": _with(lambda d: _by_channel(d, _floats(d, 4, 3))),
    "FakeQuantWithMinMaxVarsPerChannelGradient": _with(lambda d: _by_channel(d, _floats(d, 4, 3), _floats(d, 4, 3))),
}
