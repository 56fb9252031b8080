"""Savers that restore float32, float16 and bfloat16 checkpoints into variables of any of these dtypes.

    tf.train.Saver(builder=npu_shim.CastingSaverBuilder())

The builder puts the casts into the graph, so that they work with `Scaffold`, `MonitoredTrainingSession`, Estimator,
remote sessions and exported meta graphs. `Saver.restore` of the Saver that it builds reads the file's dtypes first: it
reports everything that does not fit at once, before the session runs, and tells the graph which dtype each tensor has.

A graph cannot ask for a stored dtype, and the file name is known when it runs. So each tensor is a small dataset of
attempts, one a dtype, of which the first that succeeds is taken.

Sources: `BulkSaverBuilder` and `Saver.restore` of TensorFlow 1.15.5 and 2.15.1.
"""

import collections
import functools

import numpy as np
import tensorflow.compat.v1 as tf

from npu_shim.checkpoint import selection
from npu_shim.rewriter import tf_internals
from npu_shim.rewriter.errors import ConfigError, nearest

CASTABLE = (tf.float32, tf.float16, tf.bfloat16)
COUNTERS = (tf.int32, tf.int64)  # good_steps is int32 in contrib and int64 in experimental
OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
UNKNOWN = 0  # no DataType has this number

# One tensor that a Saver reads. shape: tuple of int or None, of the whole tensor where `slice_spec` names a part.
Read = collections.namedtuple("Read", "name slice_spec dtype shape")


class CastingSaverBuilder(tf_internals.bulk_saver_builder()):
    """Builder for `tf.train.Saver` whose restored tensors are cast from what the file holds to what the graph has.

    Saving is unchanged: variables are written in their own dtype, so a float16 graph writes a float16 checkpoint, which
    the same Saver restores.

    Args:
        stored_dtypes: the dtypes that a file may hold where a variable is float32, float16 or bfloat16: an iterable of
            what `tf.as_dtype` takes, or None for these three. Integers, strings and other dtypes are never cast.
        write_version: SaverDef.V1 or V2; None takes the `write_version` of the Saver.
        init_missing_loss_scale: bool; True initializes loss-scale state that the file does not have instead of failing.

    Values that become infinite in float16 are counted on standard error.

    Raises:
        tf.errors.InvalidArgumentError: from `restore`, with one table of all dtypes and shapes that do not fit.
        tf.errors.NotFoundError: from `restore`, naming all missing tensors.
    """

    def __init__(self, stored_dtypes=None, write_version=None, init_missing_loss_scale=False):
        super().__init__(*(() if write_version is None else (write_version,)))
        dtypes = CASTABLE if stored_dtypes is None else [tf.as_dtype(d) for d in stored_dtypes]
        if set(dtypes) - set(CASTABLE):
            raise ConfigError(
                "stored_dtypes: %s: only float32, float16 and bfloat16 are cast" % [d.name for d in dtypes]
            )
        self._options = {
            "stored_dtypes": tuple(dtypes),
            "write_version": write_version,
            "init_missing_loss_scale": init_missing_loss_scale,
        }
        self._reads = []  # (name of the placeholder for stored dtypes, list of Read), one a shard

    def _build_internal(self, *args, **kwargs):
        saver = tf_internals.saver_that_builds(self)
        if saver is not None and self._options["write_version"] is None:
            self._write_version = saver._write_version
        self._reads = []
        saver_def = super()._build_internal(*args, **kwargs)
        if saver is not None and not tf.executing_eagerly():
            saver.restore = functools.partial(_restore, saver, tuple(self._reads), self._options, {})
        return saver_def

    def bulk_restore(self, filename_tensor, saveables, preferred_shard, restore_sequentially):
        """Returns the tensors of all saveables in their variables' dtypes, see the base class.

        No tensor is ready before all are, so that a file that fails halfway changes no variable.
        """
        reads = [read for saveable in saveables for read in _reads_of(saveable)]
        with tf.device("cpu:0"):
            if tf.executing_eagerly():
                found = _stored(filename_tensor.numpy().decode())
                hints = tf.constant([found[r.name].dtype.as_datatype_enum if r.name in found else 0 for r in reads])
            else:
                unknown = np.full(len(reads), UNKNOWN, np.int32)
                hints = tf.placeholder_with_default(unknown, [len(reads)], name="stored_dtypes")
                self._reads.append((hints.name, reads))
            values = _bulk(filename_tensor, [r for r in reads if not self._candidates(r)])
            lost = []
            for i, read in enumerate(reads):
                if self._candidates(read):
                    values[read], count = self._attempts(filename_tensor, hints[i], read)
                    lost += [(read.name, count)] if read.dtype == tf.float16 else []
            with tf.control_dependencies(list(values.values()) + _warn_of_lost(lost)):
                return [tf.identity(values[read]) for read in reads]

    def _candidates(self, read):
        """Returns the stored dtypes to try, own dtype first; none where the tensor is read as it is."""
        initialized = self._options["init_missing_loss_scale"] and selection.LOSS_SCALE.search(read.name)
        if read.dtype in CASTABLE:
            others = self._options["stored_dtypes"]
        else:
            others = COUNTERS if initialized and read.dtype in COUNTERS else ()
        return [read.dtype] + [d for d in others if d != read.dtype] if others else []

    def _attempts(self, filename, hint, read):
        """Returns (value, count of finite values that became infinite) of the first attempt that succeeds."""
        source = tf.data.Dataset.from_tensors((filename, hint))

        def attempt(stored, restore=_read_as):
            number = stored.as_datatype_enum
            wanted = source.filter(lambda _, known: tf.logical_or(tf.equal(known, UNKNOWN), tf.equal(known, number)))
            return _ignoring_errors(wanted.map(lambda name, _: restore(name, read, stored)))

        attempts = [attempt(stored) for stored in self._candidates(read)]
        if read.slice_spec and tf.float16 in self._candidates(read):
            attempts.append(attempt(tf.float16, _part_of_whole))
        if self._options["init_missing_loss_scale"] and selection.LOSS_SCALE.search(read.name):
            initial = {v.op.name: v for v in tf.global_variables()}[read.name].initial_value
            attempts.append(tf.data.Dataset.from_tensors((initial, tf.zeros([], tf.int64))))
        else:
            # Nothing succeeded: the error of the ordinary read is the one to show.
            attempts.append(source.map(lambda name, _: _read_as(name, read, read.dtype)))
        return _single(functools.reduce(lambda first, second: first.concatenate(second), attempts).take(1))


class CastFromFloat32SaverBuilder(CastingSaverBuilder):
    """`CastingSaverBuilder` under the name and the call of the published builder for float32 checkpoints.

    The published one restores nothing but float32; this one restores the float16 checkpoints it writes as well.
    """


def casting_initializers():
    """Scope in which TensorFlow's checkpoint initializers cast: for `Estimator(warm_start_from=...)` around `train`.

    It replaces TensorFlow's Python function `restore_v2` for all threads of the process while it is open.
    """
    return tf_internals.replaced_restore_v2(_casting_restore_v2)


def init_from_checkpoint(ckpt_dir_or_file, assignment_map):
    """`tf.train.init_from_checkpoint` for checkpoints whose float dtypes differ from the variables'.

    Raises:
        ConfigError: a dtype that cannot be cast.
    """
    with casting_initializers():
        tf.train.init_from_checkpoint(ckpt_dir_or_file, assignment_map)


def warm_start(*args, **kwargs):
    """`tf.train.warm_start` (what `Estimator(warm_start_from=...)` calls) for checkpoints of other float dtypes."""
    with casting_initializers():
        tf.train.warm_start(*args, **kwargs)


def _casting_restore_v2(restore_v2):
    def restore(prefix, tensor_names, shape_and_slices, dtypes, name=None):
        if isinstance(prefix, tf.Tensor):
            return restore_v2(prefix, tensor_names, shape_and_slices, dtypes, name)
        stored = _stored(prefix)
        wanted = [tf.as_dtype(d).base_dtype for d in dtypes]
        found = [stored[n].dtype if n in stored else d for n, d in zip(tensor_names, wanted)]
        problems = [
            "'%s' is %s in %s and cannot initialize a %s variable" % (n, f.name, prefix, w.name)
            for n, f, w in zip(tensor_names, found, wanted)
            if f != w and not (f in CASTABLE and w in CASTABLE)
        ]
        if problems:
            raise ConfigError(*problems)
        values = restore_v2(prefix, tensor_names, shape_and_slices, found, name)
        converted = [_convert(v, w) for v, w in zip(values, wanted)]
        warnings = _warn_of_lost([(n, c[1]) for n, c, w in zip(tensor_names, converted, wanted) if w == tf.float16])
        with tf.control_dependencies(warnings):
            return [tf.identity(value) for value, _ in converted]

    return restore


def _restore(saver, shards, options, object_savers, sess, save_path):
    """What `saver.restore` does: checks the file against the graph, then restores through the class's own method."""
    restore = functools.partial(type(saver).restore, saver)
    if saver._is_empty or save_path is None or not tf.train.checkpoint_exists(save_path):
        return restore(sess, save_path)
    stored = _stored(save_path)
    reads = [read for _, part in shards for read in part]
    missing = [r.name for r in reads if r.name not in stored]
    if options["init_missing_loss_scale"]:
        missing = [name for name in missing if not selection.LOSS_SCALE.search(name)]
    if missing and OBJECT_GRAPH in stored:
        return _restore_objects(saver, options, object_savers, sess, save_path)
    if missing:
        raise tf.errors.NotFoundError(None, None, _missing_message(save_path, missing, stored))
    rows = _mismatches(reads, stored, options, saver._reshape)
    if rows:
        raise tf.errors.InvalidArgumentError(None, None, _table(save_path, rows))
    feeds = {
        placeholder: [stored[r.name].dtype.as_datatype_enum if r.name in stored else UNKNOWN for r in part]
        for placeholder, part in shards
    }
    return restore(_Feeding(sess, feeds), save_path)


class _Feeding:
    """A session that adds feeds: `Saver.restore` has no argument for them."""

    def __init__(self, session, feeds):
        self.session, self.feeds = session, feeds

    def run(self, fetches, feed_dict):
        """See `tf.Session.run`."""
        return self.session.run(fetches, dict(feed_dict, **self.feeds))


def _restore_objects(saver, options, object_savers, sess, save_path):
    """Restores an object-based checkpoint by variable names; TensorFlow's own way drops the builder."""
    keys = tf_internals.object_graph_keys(save_path)
    signature = tuple(sorted(keys.items()))
    if signature not in object_savers:
        graph = sess.graph
        if graph.finalized:
            raise tf.errors.FailedPreconditionError(
                None, None, "npu_shim: %s is an object-based checkpoint: restoring it by names adds ops, and the graph "
                "is finalized. Restore it before, or convert it with npu-shim migrate-checkpoint." % save_path)
        with graph.as_default():
            parts = tf_internals.saveables(saver._var_list)
            specs = [spec for part in parts for spec in part.specs]
            missing = [spec.name for spec in specs if spec.name not in keys]
            if missing:
                raise tf.errors.NotFoundError(None, None, _missing_message(save_path, missing, keys))
            for spec in specs:
                spec.name = keys[spec.name]
            object_savers[signature] = tf.train.Saver(parts, builder=CastingSaverBuilder(**options))
    object_savers[signature].restore(sess, save_path)


Stored = collections.namedtuple("Stored", "dtype shape")


def _stored(checkpoint):
    reader = tf.train.NewCheckpointReader(tf.compat.as_text(checkpoint))
    shapes = reader.get_variable_to_shape_map()
    return {n: Stored(d, tuple(shapes[n])) for n, d in reader.get_variable_to_dtype_map().items()}


def _reads_of(saveable):
    for spec in saveable.specs:
        if spec.slice_spec:
            shape = tuple(int(size) for size in spec.slice_spec.split()[:-1])
        else:
            shape = getattr(saveable.op, "shape", None) if len(saveable.specs) == 1 else None
            shape = tuple(shape.as_list()) if shape is not None and shape.is_fully_defined() else None
        yield Read(spec.name, spec.slice_spec, tf.as_dtype(spec.dtype).base_dtype, shape)


def _bulk(filename, reads):
    if not reads:
        return {}
    names, slices, dtypes, _ = zip(*reads)
    values = tf.raw_ops.RestoreV2(
        prefix=filename, tensor_names=list(names), shape_and_slices=list(slices), dtypes=list(dtypes)
    )
    return dict(zip(reads, values))


def _read_as(filename, read, stored):
    (value,) = _bulk(filename, [read._replace(dtype=stored)]).values()
    return _convert(value, read.dtype)


def _part_of_whole(filename, read, stored):
    """Reads a part of a variable by way of the whole: TensorFlow finds no float16 part that is not stored as one."""
    (whole,) = _bulk(filename, [read._replace(dtype=stored, slice_spec="")]).values()
    extents = [extent.split(",") for extent in read.slice_spec.split()[-1].split(":")]
    begin, size = ([int(e[i]) if e[0] != "-" else (0, -1)[i] for e in extents] for i in (0, 1))
    return _convert(tf.slice(whole, begin, size), read.dtype)


def _convert(value, dtype):
    """Returns (`value` as `dtype`, int64 count of finite values that became infinite)."""
    if value.dtype == dtype:
        return value, tf.zeros([], tf.int64)
    if dtype not in CASTABLE:
        return tf.cast(value, dtype), tf.zeros([], tf.int64)
    # Through float32, which holds the other two exactly: one rounding, to nearest even.
    wide = tf.cast(value, tf.float32)
    result = tf.cast(wide, dtype)
    lost = tf.logical_and(tf.math.is_finite(wide), tf.logical_not(tf.math.is_finite(tf.cast(result, tf.float32))))
    return result, tf.math.count_nonzero(lost)


def _warn_of_lost(lost):
    """Returns the ops that name tensors with values beyond float16, given (name, count) of those that were narrowed."""
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


def _single(dataset):
    if hasattr(dataset, "get_single_element"):
        return dataset.get_single_element()
    return tf.data.experimental.get_single_element(dataset)


def _missing_message(save_path, missing, known):
    lines = ["npu_shim: %s lacks %d of the tensors to restore:" % (save_path, len(missing))]
    return "\n".join(lines + ["  %s%s" % (name, nearest(name, known)) for name in sorted(missing)])


def _mismatches(reads, stored, options, reshape):
    """Returns a row of the table for each read whose stored dtype cannot be cast or whose shape differs."""
    rows = []
    for read in reads:
        if read.name not in stored:
            continue
        found = stored[read.name]
        castable = found.dtype in options["stored_dtypes"] and read.dtype in CASTABLE
        counter = selection.LOSS_SCALE.search(read.name) and {found.dtype, read.dtype} <= set(COUNTERS)
        bridged = counter and options["init_missing_loss_scale"]
        fits = read.shape is None or found.shape == read.shape or (
            reshape and np.prod(found.shape) == np.prod(read.shape)
        )
        if not fits or not (found.dtype == read.dtype or castable or bridged):
            shape = "any" if read.shape is None else str(list(read.shape))
            rows.append((read.name, found.dtype.name, read.dtype.name, str(list(found.shape)), shape))
    return rows


def _table(save_path, rows):
    heads = ("tensor", "file dtype", "variable dtype", "file shape", "variable shape")
    widths = [max(len(row[i]) for row in [heads, *rows]) for i in range(len(heads))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in [heads, *rows]]
    return "npu_shim: %s cannot be restored, nothing was changed:\n%s" % (save_path, "\n".join(lines))
