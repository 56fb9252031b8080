"""The ops with which a Saver reads a tensor in whichever floating-point dtype the file holds.

The file's name, and so its dtypes, are known only when the graph runs. So every tensor has a switch with an output for
each dtype. The switch's position is a number, either fed by a caller that knows the file or found by trying.

Sources: RestoreV2 of TensorFlow 1.15.5 and 2.15.1, which checks the dtype it is built with and cannot report another.
"""

from __future__ import annotations

import collections
import functools
from typing import Any, Callable, Iterable, Iterator, Mapping, Sequence

import tensorflow.compat.v1 as tf

from npu_shim.checkpoint import index, selection

CASTABLE = (tf.float32, tf.float16, tf.bfloat16)
COUNTERS = (tf.int32, tf.int64)  # good_steps is int32 in contrib and int64 in experimental
UNKNOWN = 0  # no DataType has this number
WHOLE_FLOAT16 = -tf.float16.as_datatype_enum  # a part to be cut from a whole: TensorFlow cannot read it by itself

# One tensor that a Saver reads. shape: tuple of int or None, of the whole tensor where `slice_spec` names a part.
# variable: the name of the variable's op, which a dict of names to save under may give another name.
Read = collections.namedtuple("Read", "name slice_spec dtype shape variable")

# What one shard of a Saver reads, and the names of Tensors that a caller feeds. numbers: of the numbers of the ways.
# reads: list of Read. cast: those that are read in one of several dtypes. wide: dict of these to their values before
# the cast to the variables' dtypes. results: of what reaches the variables.
Shard = collections.namedtuple("Shard", "numbers reads cast wide results")

# A tensor of a file. shape: tuple of int.
Stored = collections.namedtuple("Stored", "dtype shape")


def stored_tensors(checkpoint: str) -> dict[str, Stored]:
    """Returns dict of name to Stored for a checkpoint, given its prefix."""
    reader = tf.train.NewCheckpointReader(tf.compat.as_text(checkpoint))
    shapes = reader.get_variable_to_shape_map()
    return {n: Stored(d, tuple(shapes[n])) for n, d in reader.get_variable_to_dtype_map().items()}


def reads_of(saveable: Any) -> Iterator[Read]:
    """Yields a Read for each tensor of a SaveableObject."""
    for spec in saveable.specs:
        if spec.slice_spec:
            shape = tuple(int(size) for size in spec.slice_spec.split()[:-1])
        else:
            shape = getattr(saveable.op, "shape", None) if len(saveable.specs) == 1 else None
            shape = tuple(shape.as_list()) if shape is not None and shape.is_fully_defined() else None
        written = getattr(saveable, "handle_op", saveable.op)  # of a resource variable `op` is a read
        variable = getattr(getattr(written, "op", None), "name", spec.name)
        yield Read(spec.name, spec.slice_spec, tf.as_dtype(spec.dtype).base_dtype, shape, variable)


def ways(
    read: Read, stored_dtypes: Sequence[Any] = CASTABLE, initialize_loss_scale: bool = False
) -> dict[int, Callable[[Any], Any]]:
    """Returns the ways in which a tensor may have to be read.

    Returns:
        dict of number to a function of the file's name that returns the value, as float32 where it is cast. The last,
        UNKNOWN, is for the tensor's own dtype and for a tensor about which nothing is known, so that the error is that
        of an ordinary read. A tensor that is never cast has no other.
    """
    on_request = initialize_loss_scale and selection.ADDED.search(read.name)
    stored = COUNTERS if on_request and read.dtype in COUNTERS else ()
    stored = stored_dtypes if read.dtype in CASTABLE else stored
    others = [d for d in stored if d != read.dtype] + ([read.dtype] if on_request else [])
    ways = {d.as_datatype_enum: functools.partial(_read_as, read=read, stored=d) for d in others}
    if read.slice_spec and tf.float16 in (*stored, read.dtype):
        ways[WHOLE_FLOAT16] = functools.partial(_part_of_whole, read=read)
    if on_request:
        ways[UNKNOWN] = functools.partial(_initial_value, read=read)
    else:
        ways[UNKNOWN] = functools.partial(_read_as, read=read, stored=read.dtype)
    return ways


def selected(
    filename: tf.Tensor, ways_of: Mapping[Read, Mapping[int, Callable[[Any], Any]]], known: tf.Tensor
) -> Iterator[tuple[Read, Any]]:
    """Reads each tensor in the one way that is known for it.

    Switches, and no `tf.cond`, since a checkpoint has hundreds of tensors and a branch costs milliseconds.

    Args:
        filename: string Tensor.
        ways_of: dict of Read to its `ways`.
        known: int32 Tensor [len(ways_of)], the numbers.

    Yields:
        (Read, value, as float32 where it is cast)
    """
    if tf.executing_eagerly():
        for (read, ways), number in zip(ways_of.items(), known.numpy()):
            yield read, ways.get(number, ways[UNKNOWN])(filename)
        return
    numbers = sorted({number for readers in ways_of.values() for number in readers} - {UNKNOWN})
    chosen = {number: tf.unstack(tf.equal(known, number), len(ways_of)) for number in numbers}
    for i, (read, ways) in enumerate(ways_of.items()):
        unread, results = filename, []
        for number, way in ways.items():
            taken = unread
            if number != UNKNOWN:
                unread, taken = tf.raw_ops.Switch(data=unread, pred=chosen[number][i])
            results.append(way(taken))
        yield read, tf.raw_ops.Merge(inputs=results).output


def read_all(filename: tf.Tensor, reads: Sequence[Read]) -> dict[Read, tf.Tensor]:
    """Returns dict of each Read to its Tensor, in the dtype that the Read names and the file must have."""
    if not reads:
        return {}
    names, slices, dtypes = list(zip(*reads))[:3]
    values = tf.raw_ops.RestoreV2(
        prefix=filename, tensor_names=list(names), shape_and_slices=list(slices), dtypes=list(dtypes)
    )
    return dict(zip(reads, values))


def numbers(reads: Sequence[Read], stored: Mapping[str, Stored], parts: Mapping[str, Any]) -> list[int]:
    """Returns the number of the way to read each tensor of a file whose dtypes and parts are known.

    Args:
        reads: list of Read.
        stored: see `stored_tensors`.
        parts: see `checkpoint.index.slices`.
    """
    numbers = []
    for read in reads:
        dtype = stored[read.name].dtype if read.name in stored else None
        if is_cut_from_whole(read, stored, parts):
            numbers.append(WHOLE_FLOAT16)
        else:
            numbers.append(UNKNOWN if dtype is None else dtype.as_datatype_enum)
    return numbers


def is_cut_from_whole(read: Read, stored: Mapping[str, Stored], parts: Mapping[str, Any]) -> bool:
    """Whether a Read needs a part of a float16 tensor that the file has as a whole; arguments as of `numbers`."""
    halves = read.name in stored and stored[read.name].dtype == tf.float16
    return halves and bool(read.slice_spec) and read.name not in parts


def unreadable(reads: Iterable[Read], stored: Mapping[str, Stored], parts: Mapping[str, Any]) -> list[Read]:
    """Returns the Reads that need other parts of a float16 tensor than the file has; TensorFlow reads these only.

    Args:
        reads: list of Read.
        stored: see `stored_tensors`.
        parts: see `checkpoint.index.slices`.
    """
    split = [r for r in reads if r.name in parts and r.name in stored and stored[r.name].dtype == tf.float16]
    return [r for r in split if not (r.slice_spec and index.bounds(r.slice_spec) in parts[r.name])]


def part_of_parts(filename: Any, read: Read, parts: Sequence[Any]) -> tf.Tensor:
    """Reads a part, or all, of a float16 tensor of whose own parts none is that: they are read and joined.

    Args:
        filename: str or string Tensor.
        read: the Read.
        parts: those of the tensor in the file, see `checkpoint.index.slices`, or none where it is whole.

    Returns:
        Tensor, float32.
    """
    if not parts:
        return _part_of_whole(filename, read)
    ordered, rank = sorted(parts), len(parts[0][0])
    shape = [max(start[axis] + size[axis] for start, size in ordered) for axis in range(rank)]
    divided = [axis for axis in range(rank) if len({start[axis] for start, _ in ordered}) > 1]  # one at most
    stored = [read._replace(dtype=tf.float16, slice_spec=index.spec(shape, part)) for part in ordered]
    whole = tf.concat([read_all(filename, [part])[part] for part in stored], divided[0] if divided else 0)
    return _widen(tf.slice(whole, *index.bounds(read.slice_spec)) if read.slice_spec else whole, read)


def found_by_trying(filename: tf.Tensor, reads: Sequence[Read]) -> tf.Tensor:
    """Returns int32 [len(reads)], the number of the way by which each tensor can be read, or UNKNOWN."""
    names, specs = tf.constant([r.name for r in reads]), tf.constant([r.slice_spec for r in reads])
    dtypes = CASTABLE + COUNTERS if any(r.dtype in COUNTERS for r in reads) else CASTABLE
    tries = [(d, specs, d.as_datatype_enum) for d in dtypes]
    if any(r.slice_spec for r in reads):
        tries.insert(0, (tf.float16, tf.constant([""] * len(reads)), WHOLE_FLOAT16))
    numbers = tf.fill([len(reads)], UNKNOWN)
    for dtype, wanted, number in tries:

        def attempt(i, dtype=dtype, wanted=wanted):
            value = tf.raw_ops.RestoreV2(
                prefix=filename, tensor_names=[names[i]], shape_and_slices=[wanted[i]], dtypes=[dtype])
            with tf.control_dependencies(value):
                return tf.identity(i)

        succeeded = _ignoring_errors(tf.data.Dataset.range(len(reads)).map(attempt))
        marks = succeeded.reduce(
            tf.zeros([len(reads)], tf.bool),
            lambda marked, i: tf.logical_or(marked, tf.equal(tf.range(len(reads), dtype=tf.int64), i)))
        numbers = tf.where(marks, tf.fill([len(reads)], number), numbers)
    return numbers


def _initial_value(filename, read):
    initial = {v.op.name: v for v in tf.global_variables() + tf.local_variables()}[read.variable].initial_value
    # ops of a branch that is not taken must be dead, but the Switch that outputs `filename` always runs
    with tf.control_dependencies([tf.identity(filename)]):
        return _widen(tf.identity(initial), read)


def _read_as(filename, read, stored):
    (value,) = read_all(filename, [read._replace(dtype=stored)]).values()
    return _widen(value, read)


def _part_of_whole(filename, read):
    """Reads a part of a variable by slicing the whole: TensorFlow finds only float16 parts that are stored as such."""
    (whole,) = read_all(filename, [read._replace(dtype=tf.float16, slice_spec="")]).values()
    return _widen(tf.slice(whole, *index.bounds(read.slice_spec)), read)


def _widen(value, read):
    """Returns float32, which holds the others exactly, so that only `convert` rounds, once, to nearest even."""
    return tf.cast(value, tf.float32 if read.dtype in CASTABLE else read.dtype)


def convert(value: Any, dtype: Any) -> tuple[tf.Tensor, Any]:
    """Returns (`value` as `dtype`, int64 count of finite values that became infinite or None where none can)."""
    result = tf.cast(value, dtype)
    if dtype != tf.float16:
        return result, None
    lost = tf.logical_and(tf.math.is_finite(value), tf.logical_not(tf.math.is_finite(result)))
    return result, tf.reduce_sum(tf.cast(lost, tf.int64))


def warn_of_lost(lost: Iterable[tuple[str, Any]]) -> list[Any]:
    """Returns the ops that name tensors with values beyond float16, given pairs of name and count or None."""
    lost = [(name, count) for name, count in lost if count is not None]
    if not lost:
        return []
    names, counts = tf.constant([name for name, _ in lost]), tf.stack([count for _, count in lost])

    def warn():
        some = counts > 0
        return tf.print(
            "npu_shim: values beyond 65504 became infinite in float16: tensors",
            tf.boolean_mask(names, some), "counts", tf.boolean_mask(counts, some), summarize=-1,
        )

    return [tf.cond(tf.reduce_any(counts > 0), lambda: _true_after(warn()), lambda: tf.constant(True))]


def _true_after(op):
    with tf.control_dependencies([op]):
        return tf.constant(True)


def _ignoring_errors(dataset):
    if hasattr(dataset, "ignore_errors"):
        return dataset.ignore_errors()
    return dataset.apply(tf.data.experimental.ignore_errors())
