"""Tensors made, reshaped, joined, cut and copied: what moves elements and computes none."""

from __future__ import annotations

from typing import Any, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from npu_shim.step.containers import lists, optionals
from npu_shim.step.refusals import Unsupported
from npu_shim.step.rules.table import ALL, Attrs, Rule
from npu_shim.step.values import Rows, ints, is_known, whole, xp

# -- made --------------------------------------------------------------------------------------------------------------


def const(attrs: Attrs) -> Any:
    """Const."""
    return attrs["value"]


def fill(attrs: Attrs, shape: Any, value: Any) -> Any:
    """Fill; what is not small is XLA's to make."""
    return _full(ints(shape), value)


def _full(shape: Sequence[int], value: Any) -> Any:
    if is_known(value) and np.prod(shape, dtype=np.int64) <= SMALL:
        return np.full(shape, value, value.dtype)
    return jnp.broadcast_to(jnp.asarray(value), tuple(shape))


SMALL = 4096  # elements: known tensors beyond are made by XLA, so that programs do not hold them


def like(value: int) -> Rule:
    """A tensor of one value in the shape of another."""

    def filled(attrs: Attrs, x: Any) -> Any:
        if isinstance(x, lists.List) and value == 0:
            return lists.zeros_like(x)
        if isinstance(x, optionals.Optional) and value == 0:
            return optionals.zeros_like(x)
        return _full(x.shape, np.array(value, x.dtype))

    return Rule(filled, rows="each", lists=value == 0)


def range_(attrs: Attrs, start: Any, limit: Any, delta: Any) -> Any:
    """Range: each number is a product, and their count one in its dtype, as in TensorFlow 2's kernel."""
    if not is_known(start, limit, delta):
        raise Unsupported("its limits had to be known when the step is traced")
    if delta == 0 or np.issubdtype(start.dtype, np.integer):
        return np.arange(start, limit, delta).astype(start.dtype)
    count = int(np.ceil(np.abs((limit - start) / delta))) if (limit - start) / delta > 0 else 0
    return (start + np.arange(count).astype(start.dtype) * delta).astype(start.dtype)


def linspace(attrs: Attrs, start: Any, stop: Any, count: Any) -> Any:
    """LinSpace."""
    return jnp.linspace(start, stop, whole(count), dtype=start.dtype)


def one_hot(attrs: Attrs, indices: Any, depth: Any, on: Any, off: Any) -> Any:
    """OneHot: an index that is out of range has no `on`."""
    axis = attrs["axis"] if attrs["axis"] >= 0 else indices.ndim
    indices = indices.astype(np.promote_types(indices.dtype, np.int32))  # 8 bits do not count to many classes
    classes = np.arange(whole(depth)).astype(indices.dtype)
    shape = [1] * (indices.ndim + 1)
    shape[axis] = -1
    return jnp.where(jnp.expand_dims(indices, axis) == classes.reshape(shape), on, off)


def _one_hot_rows(attrs: Attrs, indices: Any, *others: Any) -> Rows:
    if not isinstance(indices, Rows) or attrs["axis"] not in (-1, indices.array.ndim):
        raise Unsupported("its new dimension stands before rows whose number depends on data")
    return Rows(one_hot(attrs, indices.array, *others), indices.count)


# -- shapes ------------------------------------------------------------------------------------------------------------


def shape(attrs: Attrs, x: Any) -> Any:
    """Shape: known."""
    return np.array(x.shape, attrs["out_type"])


def shape_n(attrs: Attrs, *values: Any) -> Any:
    """ShapeN."""
    shapes = tuple(shape(attrs, value) for value in values)
    return shapes[0] if len(shapes) == 1 else shapes


def broadcast_gradient_args(attrs: Attrs, first: Any, second: Any) -> Any:
    """BroadcastGradientArgs: the axes along which the gradient of each of two broadcast tensors is summed."""
    shapes = [ints(first) if first.size else (), ints(second) if second.size else ()]
    if shapes[0] == shapes[1]:
        return np.zeros(0, first.dtype), np.zeros(0, first.dtype)
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(dims)) + dims for dims in shapes]
    return tuple(np.array([at for at in range(rank) if dims[at] == 1], first.dtype) for dims in padded)


def broadcast_args(attrs: Attrs, first: Any, second: Any) -> Any:
    """BroadcastArgs."""
    dims = np.broadcast_shapes(*(ints(value) if value.size else () for value in (first, second)))
    return np.array(dims, first.dtype)


def reshape(attrs: Attrs, x: Any, dims: Any) -> Any:
    """Reshape."""
    dims = ints(dims) if dims.size else ()
    if -1 in dims and x.size == 0:
        known = int(np.prod([size for size in dims if size >= 0], dtype=np.int64))
        dims = tuple((0 if known == 0 else x.size // known) if size < 0 else size for size in dims)
    return x.reshape(dims)


def expand_dims(attrs: Attrs, x: Any, axis: Any) -> Any:
    """ExpandDims."""
    return xp(x).expand_dims(x, whole(axis))


def squeeze(attrs: Attrs, x: Any) -> Any:
    """Squeeze."""
    dims = attrs["squeeze_dims"]
    return xp(x).squeeze(x, tuple(dims) if dims else None)


def transpose(attrs: Attrs, x: Any, permutation: Any) -> Any:
    """Transpose."""
    order = tuple(axis % x.ndim for axis in ints(permutation)) if x.ndim else ()
    return xp(x).transpose(x, order)


def conjugate_transpose(attrs: Attrs, x: Any, permutation: Any) -> Any:
    """ConjugateTranspose."""
    return xp(x).conj(transpose(attrs, x, permutation))


def broadcast_to(attrs: Attrs, x: Any, dims: Any) -> Any:
    """BroadcastTo."""
    return xp(x).broadcast_to(x, ints(dims) if dims.size else ())


def tile(attrs: Attrs, x: Any, multiples: Any) -> Any:
    """Tile."""
    return xp(x).tile(x, ints(multiples)) if x.ndim else x


def invert_permutation(attrs: Attrs, x: Any) -> Any:
    """InvertPermutation."""
    if is_known(x):
        return np.argsort(x).astype(x.dtype)
    return jnp.zeros_like(x).at[x].set(jnp.arange(x.shape[0], dtype=x.dtype))


def ensure_shape(attrs: Attrs, x: Any) -> Any:
    """EnsureShape."""
    wanted = attrs["shape"]
    fits = wanted is None or (
        len(wanted) == x.ndim and all(one in (-1, other) for one, other in zip(wanted, x.shape))
    )  # fmt: skip
    if not fits:
        raise Unsupported("it wants shape %s, and is given one of shape %s" % (wanted, x.shape))
    return x


# -- joined and cut ----------------------------------------------------------------------------------------------------


def concat(attrs: Attrs, *values: Any) -> Any:
    """ConcatV2."""
    *parts, axis = values
    return _joined(parts, whole(axis))


def _joined(parts: Sequence[Any], axis: int) -> Any:
    return parts[0] if len(parts) == 1 else xp(*parts).concatenate(parts, axis)


def concat_first(attrs: Attrs, axis: Any, *parts: Any) -> Any:
    """Concat, whose axis comes first."""
    return _joined(parts, whole(axis))


def concat_offset(attrs: Attrs, axis: Any, *shapes: Any) -> Any:
    """ConcatOffset: where each part begins in what they are joined to."""
    at, start, result = whole(axis), 0, []
    for dims in shapes:
        offset = np.zeros_like(dims)
        offset[at] = start
        start += int(dims[at])
        result.append(offset)
    return result[0] if len(result) == 1 else tuple(result)


def pack(attrs: Attrs, *values: Any) -> Any:
    """Pack."""
    return xp(*values).stack(values, attrs["axis"])


def parallel_concat(attrs: Attrs, *values: Any) -> Any:
    """ParallelConcat."""
    return _joined(values, 0)


def unpack(attrs: Attrs, x: Any) -> Any:
    """Unpack."""
    axis, count = attrs["axis"] % x.ndim, attrs["num"]
    parts = tuple(x[(slice(None),) * axis + (at,)] for at in range(count))
    return parts[0] if count == 1 else parts


def split(attrs: Attrs, axis: Any, x: Any) -> Any:
    """Split."""
    count = attrs["num_split"]
    return x if count == 1 else tuple(xp(x).split(x, count, whole(axis)))


def split_v(attrs: Attrs, x: Any, sizes: Any, axis: Any) -> Any:
    """SplitV: one size may be -1."""
    at, parts = whole(axis), list(ints(sizes))
    if -1 in parts:
        parts[parts.index(-1)] = x.shape[at] - sum(size for size in parts if size >= 0)
    ends = np.cumsum(parts)[:-1].tolist()
    return x if len(parts) == 1 else tuple(xp(x).split(x, ends, at))


def pad(attrs: Attrs, x: Any, paddings: Any, value: Any = None) -> Any:
    """Pad and PadV2."""
    amounts = [tuple(pair) for pair in np.asarray(paddings).tolist()]
    filled = np.zeros((), x.dtype) if value is None else value
    if is_known(x, filled):
        return np.pad(x, amounts, constant_values=filled) if x.ndim else x
    return lax.pad(jnp.asarray(x), jnp.asarray(filled, x.dtype), [(low, high, 0) for low, high in amounts])


def mirror_pad(attrs: Attrs, x: Any, paddings: Any) -> Any:
    """MirrorPad."""
    amounts = [tuple(pair) for pair in np.asarray(paddings).tolist()]
    return jnp.pad(x, amounts, mode="reflect" if attrs["mode"] == "REFLECT" else "symmetric")


def mirror_pad_grad(attrs: Attrs, g: Any, paddings: Any) -> Any:
    """MirrorPadGrad: what was mirrored adds up."""
    sizes = [size - sum(pair) for size, pair in zip(g.shape, np.asarray(paddings).tolist())]
    like = jax.ShapeDtypeStruct(tuple(sizes), g.dtype)
    return jax.linear_transpose(lambda x: mirror_pad(attrs, x, paddings), like)(jnp.asarray(g))[0]


def reverse(attrs: Attrs, x: Any, axes: Any) -> Any:
    """ReverseV2."""
    return xp(x).flip(x, ints(axes)) if np.size(axes) else x


def reverse_by_mask(attrs: Attrs, x: Any, mask: Any) -> Any:
    """Reverse: of the dimensions of which the mask says so."""
    return reverse(attrs, x, np.flatnonzero(mask))


def dims_of_format(attrs: Attrs, x: Any) -> Any:
    """DataFormatDimMap: numbers of dimensions, of which negative ones count from the end."""
    source, target = _formats(attrs)
    places = np.array([target.index(axis) for axis in source], x.dtype)
    size = np.array(len(places), x.dtype)
    return xp(x).take(places, xp(x).where(x < 0, x + size, x)) if is_known(x) else jnp.asarray(places)[x]


def _formats(attrs: Attrs) -> tuple[str, str]:
    """Source and target, each a permutation of the other one; TensorFlow's kernels stop at others."""
    source, target = attrs["src_format"], attrs["dst_format"]
    if len(source) not in (4, 5) or len(set(source)) < len(source) or sorted(source) != sorted(target):
        raise Unsupported("'%s' is no permutation of a format '%s' of 4 or 5 dimensions" % (target, source))
    return source, target


def permuted_to_format(attrs: Attrs, x: Any) -> Any:
    """DataFormatVecPermute: of sizes, or pairs of sizes, of all dimensions, or of those of height and width."""
    source, target = _formats(attrs)
    if x.shape[0] != len(source):
        source, target = ("".join(axis for axis in name if axis not in "NC") for name in (source, target))
    return x[np.array([source.index(axis) for axis in target])]


def empty(attrs: Attrs, dims: Any) -> Any:
    """Empty: zeros, whatever its attribute says."""
    return _full(ints(dims) if dims.size else (), np.zeros((), attrs["dtype"]))


def placeholder_of_branch(attrs: Attrs) -> Any:
    """FakeParam: what a branch returns in the place of what only another one computes; no one looks at it."""
    if attrs["shape"] is None or -1 in attrs["shape"]:
        raise Unsupported("its size is not known")
    return jnp.zeros(attrs["shape"], attrs["dtype"])


def reverse_sequence(attrs: Attrs, x: Any, lengths: Any) -> Any:
    """ReverseSequence: of each row the first `lengths` elements, along seq_dim."""
    time, batch = attrs["seq_dim"], attrs["batch_dim"]
    x = jnp.moveaxis(x, (batch, time), (0, 1))
    at, ends = np.arange(x.shape[1])[None].astype(lengths.dtype), lengths[:, None]
    index = jnp.where(at < ends, ends - np.ones((), lengths.dtype) - at, at)
    index = index.reshape(index.shape + (1,) * (x.ndim - 2))
    return jnp.moveaxis(jnp.take_along_axis(x, index, 1), (0, 1), (batch, time))


def roll(attrs: Attrs, x: Any, shift: Any, axis: Any) -> Any:
    """Roll."""
    for by, at in zip(np.atleast_1d(axis).tolist(), range(np.size(axis))):
        x = jnp.roll(x, jnp.reshape(shift, (-1,))[at], by)
    return x


def space_to_batch(attrs: Attrs, x: Any, block: Any, paddings: Any) -> Any:
    """SpaceToBatchND."""
    sizes, count = ints(block), np.size(block)
    x = pad(attrs, x, [(0, 0), *np.asarray(paddings).tolist(), *[(0, 0)] * (x.ndim - 1 - count)])
    split_dims = [dim for at in range(count) for dim in (x.shape[at + 1] // sizes[at], sizes[at])]
    x = x.reshape((x.shape[0], *split_dims, *x.shape[count + 1 :]))
    blocks, places = [2 * at + 2 for at in range(count)], [2 * at + 1 for at in range(count)]
    x = x.transpose((*blocks, 0, *places, *range(2 * count + 1, x.ndim)))
    return x.reshape((-1, *x.shape[count + 1 :]))


def batch_to_space(attrs: Attrs, x: Any, block: Any, crops: Any) -> Any:
    """BatchToSpaceND."""
    sizes, count = ints(block), np.size(block)
    batch = x.shape[0] // int(np.prod(sizes))
    x = x.reshape((*sizes, batch, *x.shape[1:]))
    pairs = [axis for at in range(count) for axis in (count + 1 + at, at)]
    x = x.transpose((count, *pairs, *range(2 * count + 1, x.ndim)))
    merged = [x.shape[1 + 2 * at] * x.shape[2 + 2 * at] for at in range(count)]
    x = x.reshape((batch, *merged, *x.shape[2 * count + 1 :]))
    cut = [slice(low, size - high) for (low, high), size in zip(np.asarray(crops).tolist(), merged)]
    return x[(slice(None), *cut)]


def space_to_depth(attrs: Attrs, x: Any) -> Any:
    """SpaceToDepth."""
    size, first = attrs["block_size"], attrs["data_format"] == "NCHW"
    x = jnp.moveaxis(x, 1, -1) if first else x
    n, h, w, c = x.shape
    x = x.reshape((n, h // size, size, w // size, size, c)).transpose((0, 1, 3, 2, 4, 5))
    x = x.reshape((n, h // size, w // size, size * size * c))
    return jnp.moveaxis(x, -1, 1) if first else x


def depth_to_space(attrs: Attrs, x: Any) -> Any:
    """DepthToSpace."""
    size, first = attrs["block_size"], attrs["data_format"] == "NCHW"
    x = jnp.moveaxis(x, 1, -1) if first else x
    n, h, w, c = x.shape
    x = x.reshape((n, h, w, size, size, c // size**2)).transpose((0, 1, 3, 2, 4, 5))
    x = x.reshape((n, h * size, w * size, c // size**2))
    return jnp.moveaxis(x, -1, 1) if first else x


def select(attrs: Attrs, condition: Any, x: Any, y: Any) -> Any:
    """Select: a vector of conditions chooses rows."""
    extra = x.ndim - condition.ndim
    condition = condition.reshape(condition.shape + (1,) * extra) if condition.ndim == 1 and extra > 0 else condition
    return xp(condition, x, y).where(condition, x, y)


def select_v2(attrs: Attrs, condition: Any, x: Any, y: Any) -> Any:
    """SelectV2, which broadcasts."""
    return xp(condition, x, y).where(condition, x, y)


RULES = {
    "Const": Rule(const),
    "Fill": Rule(fill, known=(0,)),
    "ZerosLike": like(0),
    "OnesLike": like(1),
    "Range": Rule(range_, known=(0, 1, 2)),
    "LinSpace": Rule(linspace, known=(2,)),
    "OneHot": Rule(one_hot, known=(1,), rows=_one_hot_rows),
    "Shape": Rule(shape, text=True),
    "ShapeN": Rule(shape_n),
    "Size": Rule(lambda attrs, x: np.array(x.size, attrs["out_type"])),
    "Rank": Rule(lambda attrs, x: np.int32(x.ndim), rows=lambda attrs, x: np.int32(x.array.ndim)),
    "BroadcastGradientArgs": Rule(broadcast_gradient_args, known=(0, 1)),
    "BroadcastArgs": Rule(broadcast_args, known=(0, 1)),
    "Reshape": Rule(reshape, known=(1,)),
    "ExpandDims": Rule(expand_dims, known=(1,)),
    "Squeeze": Rule(squeeze),
    "Transpose": Rule(transpose, known=(1,)),
    "ConjugateTranspose": Rule(conjugate_transpose, known=(1,)),
    "BroadcastTo": Rule(broadcast_to, known=(1,)),
    "Tile": Rule(tile, known=(1,)),
    "InvertPermutation": Rule(invert_permutation),
    "EnsureShape": Rule(ensure_shape),
    "ConcatV2": Rule(concat, known=(-1,)),
    "Concat": Rule(concat_first, known=(0,)),
    "ConcatOffset": Rule(concat_offset, known=(ALL,)),
    "Pack": Rule(pack),
    "ParallelConcat": Rule(parallel_concat),
    "Unpack": Rule(unpack),
    "Split": Rule(split, known=(0,)),
    "SplitV": Rule(split_v, known=(1, 2)),
    "Pad": Rule(pad, known=(1,)),
    "PadV2": Rule(pad, known=(1,)),
    "MirrorPad": Rule(mirror_pad, known=(1,)),
    "MirrorPadGrad": Rule(mirror_pad_grad, known=(1,)),
    "SpaceToBatch": Rule(lambda attrs, x, pads: space_to_batch(attrs, x, [attrs["block_size"]] * 2, pads), known=(1,)),
    "BatchToSpace": Rule(lambda attrs, x, cuts: batch_to_space(attrs, x, [attrs["block_size"]] * 2, cuts), known=(1,)),
    "ReverseV2": Rule(reverse, known=(1,)),
    "Reverse": Rule(reverse_by_mask, known=(1,)),
    "DataFormatDimMap": Rule(dims_of_format),
    "DataFormatVecPermute": Rule(permuted_to_format),
    "Empty": Rule(empty, known=(0,)),
    "FakeParam": Rule(placeholder_of_branch),
    "DeviceIndex": Rule(lambda attrs: np.int32(len(attrs["device_names"]))),  # of none, as TensorFlow's XLA says
    "ReverseSequence": Rule(reverse_sequence),
    "Roll": Rule(roll, known=(2,)),
    "SpaceToBatchND": Rule(space_to_batch, known=(1, 2)),
    "BatchToSpaceND": Rule(batch_to_space, known=(1, 2)),
    "SpaceToDepth": Rule(space_to_depth),
    "DepthToSpace": Rule(depth_to_space),
    "Select": Rule(select, rows="each"),
    "SelectV2": Rule(select_v2, rows="each"),
}
