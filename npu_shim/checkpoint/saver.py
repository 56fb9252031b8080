"""Savers that restore float32, float16 and bfloat16 checkpoints into variables of any of these dtypes.

    tf.train.Saver(builder=npu_shim.CastingSaverBuilder())

The builder puts the casts into the graph, so that they work with `Scaffold`, `MonitoredTrainingSession`, Estimator,
remote sessions and exported meta graphs. `Saver.restore` of the Saver that it builds reads the file's dtypes first: it
reports everything that does not fit at once, before the session runs, and tells the graph which dtype each tensor has.

A graph restored otherwise (an imported one) finds the dtypes itself: it reads every tensor in each dtype and sees which
read fails. No op tells the dtype of a stored tensor, and the name of the file is known only when the graph runs.

Sources: `BulkSaverBuilder` and `Saver.restore` of TensorFlow 1.15.5 and 2.15.1.
"""

from __future__ import annotations

import functools
import logging
from typing import Any, ContextManager, Mapping

import numpy as np
import tensorflow.compat.v1 as tf

from npu_shim.checkpoint import files, index, restore_ops, selection
from npu_shim.checkpoint.restore_ops import CASTABLE, COUNTERS, UNKNOWN, convert, stored_tensors, warn_of_lost
from npu_shim.rewriter import tf_internals
from npu_shim.rewriter.errors import ConfigError, nearest

LOG = logging.getLogger("npu_shim")
KEPT = (
    "npu_shim: %s lacks '%s'%s, which a loss scale or float32 masters have added: such variables keep their initial "
    "values"
)
OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"


class CastingSaverBuilder(tf_internals.bulk_saver_builder()):
    """Builder for `tf.train.Saver` whose restored tensors are cast from what the file holds to what the graph has.

    Saving is unchanged: variables are written in their own dtype, so a float16 graph writes a float16 checkpoint, which
    the same Saver restores.

    Args:
        stored_dtypes: the dtypes that a file may hold where a variable is float32, float16 or bfloat16: an iterable of
            what `tf.as_dtype` takes, or None for these three. Integers, strings and other dtypes are never cast.
        write_version: SaverDef.V1 or V2; None takes the `write_version` of the Saver.
        init_missing_loss_scale: bool; True initializes what only a loss scale or float32 masters have added, and the
            file does not have, instead of failing, and logs it.

    Values that become infinite in float16 are counted on standard error.

    Raises:
        tf.errors.InvalidArgumentError: from `restore`, with one table of all dtypes and shapes that do not fit.
        tf.errors.NotFoundError: from `restore`, naming all missing tensors.
    """

    def __init__(
        self, stored_dtypes: Any = None, write_version: Any = None, init_missing_loss_scale: bool = False
    ) -> None:
        super().__init__(*(() if write_version is None else (write_version,)))
        dtypes = CASTABLE if stored_dtypes is None else _castable(stored_dtypes)
        self._options = {
            "stored_dtypes": tuple(dtypes),
            "write_version": write_version,
            "init_missing_loss_scale": init_missing_loss_scale,
        }
        self._shards = []

    def _build_internal(self, *args, **kwargs):
        if not isinstance(self, CastingSaverBuilder):  # then `self` is the first argument of a call of the class's
            raise ConfigError("builder: give the Saver an instance, such as CastingSaverBuilder(), not the class")
        saver = tf_internals.saver_that_builds(self)
        if saver is not None and self._options["write_version"] is None:
            self._write_version = saver._write_version
        self._shards = []
        saver_def = super()._build_internal(*args, **kwargs)
        if saver is not None and not tf.executing_eagerly():
            saver.restore = functools.partial(_restore, saver, tuple(self._shards), self._options, {})
        return saver_def

    def bulk_restore(
        self, filename_tensor: Any, saveables: Any, preferred_shard: Any, restore_sequentially: Any
    ) -> list[Any]:
        """Returns the tensors of all saveables in their variables' dtypes, see the base class.

        No tensor is ready before all are, so that a file that fails halfway changes no variable.
        """
        reads = [read for saveable in saveables for read in restore_ops.reads_of(saveable)]
        dtypes, initialized = self._options["stored_dtypes"], self._options["init_missing_loss_scale"]
        ways = {read: restore_ops.ways(read, dtypes, initialized) for read in reads}
        cast = {read: readers for read, readers in ways.items() if len(readers) > 1}
        with tf.device("cpu:0"):
            values = restore_ops.read_all(filename_tensor, [read for read in reads if read not in cast])
            fed, known = _known(filename_tensor, list(cast))
            wide = dict(restore_ops.selected(filename_tensor, cast, known) if cast else ())
            lost = []
            for read, value in wide.items():
                # `restore` feeds `value`: control edges start from an op behind it, which Grappler leaves where it is
                values[read], count = convert(tf.ensure_shape(value, value.shape), read.dtype)
                lost.append((read.name, count))
            with tf.control_dependencies([tf.group(*values.values(), *warn_of_lost(lost))]):
                results = [tf.identity(values[read]) for read in reads]
        if not tf.executing_eagerly():
            names = [result.name for result in results]
            places = {read: value.name for read, value in wide.items()}
            self._shards.append(restore_ops.Shard(fed.name, reads, list(cast), places, names))
        return results


def _castable(dtypes):
    """Returns the dtypes of `stored_dtypes`; raises ConfigError for other values."""
    if isinstance(dtypes, (str, tf.DType)) or not hasattr(dtypes, "__iter__"):
        raise ConfigError("stored_dtypes is %r, expected a list of dtypes, such as [%r]" % (dtypes, dtypes))
    names = [_dtype_name(dtype) for dtype in dtypes]
    known = {dtype.name: dtype for dtype in CASTABLE}
    wrong = [name for name in names if name not in known]
    if wrong:
        text = "stored_dtypes: %s: only float32, float16 and bfloat16 are cast%s"
        raise ConfigError(text % (wrong, nearest(wrong[0], known)))
    return [known[name] for name in names]


def _dtype_name(dtype):
    try:
        return tf.as_dtype(dtype).name
    except TypeError:  # the user's own word, for a message
        return str(dtype)


def _known(filename, cast):
    """Returns (Tensor that `restore` feeds, int32 [len(cast)]): the number of the way to read each, fed or tried."""
    if tf.executing_eagerly():
        path = filename.numpy().decode()
        return None, tf.constant(restore_ops.numbers(cast, stored_tensors(path), index.slices(path)), tf.int32)
    unknown = np.full(len(cast), UNKNOWN, np.int32)
    fed = tf.placeholder_with_default(unknown, [len(cast)], name="stored_dtypes")
    if not cast:
        return fed, fed
    return fed, tf.cond(
        tf.reduce_any(tf.not_equal(fed, UNKNOWN)),
        lambda: tf.identity(fed),
        lambda: restore_ops.found_by_trying(filename, cast),
    )


class CastFromFloat32SaverBuilder(CastingSaverBuilder):
    """`CastingSaverBuilder` under the name and the call of the published builder for float32 checkpoints.

    The published one restores only float32; this one also restores the float16 checkpoints that it writes.
    """


def casting_initializers() -> ContextManager[None]:
    """Scope in which TensorFlow's checkpoint initializers cast: for `Estimator(warm_start_from=...)` around `train`.

    It replaces TensorFlow's Python function `restore_v2` for all threads of the process while it is open.
    """
    return tf_internals.replaced_restore_v2(_casting_restore_v2)


def init_from_checkpoint(ckpt_dir_or_file: str, assignment_map: Mapping[str, Any]) -> None:
    """`tf.train.init_from_checkpoint` for checkpoints whose float dtypes differ from the variables'.

    Raises:
        ConfigError: a dtype that cannot be cast.
    """
    with casting_initializers():
        tf.train.init_from_checkpoint(ckpt_dir_or_file, assignment_map)


def warm_start(*args: Any, **kwargs: Any) -> None:
    """`tf.train.warm_start` (what `Estimator(warm_start_from=...)` calls) for checkpoints of other float dtypes."""
    with casting_initializers():
        tf.train.warm_start(*args, **kwargs)


def _casting_restore_v2(restore_v2):
    def restore(prefix, tensor_names, shape_and_slices, dtypes, name=None):
        if isinstance(prefix, tf.Tensor):
            return restore_v2(prefix, tensor_names, shape_and_slices, dtypes, name)
        stored, parts = stored_tensors(prefix), index.slices(tf.compat.as_text(prefix))
        wanted = [tf.as_dtype(d).base_dtype for d in dtypes]
        held = [stored[n].dtype if n in stored else d for n, d in zip(tensor_names, wanted)]
        problems = [
            "'%s' is %s in %s and cannot initialize a %s variable" % (n, f.name, prefix, w.name)
            for n, f, w in zip(tensor_names, held, wanted)
            if f != w and not (f in CASTABLE and w in CASTABLE)
        ]
        if problems:
            raise ConfigError(*problems)
        reads = [restore_ops.Read(n, spec, d, None, n) for n, spec, d in zip(tensor_names, shape_and_slices, held)]
        ours = [read for read in reads if restore_ops.is_cut_from_whole(read, stored, parts)]
        ours += restore_ops.unreadable(reads, stored, parts)
        others = [read for read in reads if read not in ours]
        values = dict(zip(others, restore_v2(prefix, *list(zip(*others))[:3], name))) if others else {}
        values.update((read, restore_ops.part_of_parts(prefix, read, parts.get(read.name))) for read in ours)
        read_as = [values[read] for read in reads]
        converted = [(v, None) if v.dtype == w else convert(tf.cast(v, tf.float32), w) for v, w in zip(read_as, wanted)]
        warnings = warn_of_lost([(name, count) for name, (_, count) in zip(tensor_names, converted)])
        with tf.control_dependencies(warnings):
            return [tf.identity(value) for value, _ in converted]

    return restore


def _restore(saver, shards, options, object_savers, sess, save_path):
    """Replaces `saver.restore`: checks the file against the graph, then restores with the class's own method."""
    restore = functools.partial(type(saver).restore, saver)
    if save_path is not None:
        save_path = tf.compat.as_text(save_path)
    if saver._is_empty or save_path is None or not tf.train.checkpoint_exists(save_path):
        return restore(sess, save_path)
    try:
        files.check_is_no_part(save_path)
    except ConfigError as error:
        raise tf.errors.InvalidArgumentError(None, None, str(error)) from error
    stored = stored_tensors(save_path)
    reads = [read for shard in shards for read in shard.reads]
    missing = [r.name for r in reads if r.name not in stored]
    if options["init_missing_loss_scale"]:
        added = sorted(name for name in missing if selection.ADDED.search(name))
        missing = [name for name in missing if name not in added]
        if added and not missing:
            more = " and %d more" % (len(added) - 1) if added[1:] else ""
            LOG.warning(KEPT, save_path, added[0], more)
    if missing and OBJECT_GRAPH in stored:
        return _restore_objects(saver, options, object_savers, sess, save_path)
    if missing:
        raise tf.errors.NotFoundError(None, None, _missing_message(save_path, missing, stored))
    rows = _mismatches(reads, stored, options, saver._reshape)
    if rows:
        raise tf.errors.InvalidArgumentError(None, None, _table(save_path, rows))
    parts = index.slices(save_path)
    feeds = {shard.numbers: restore_ops.numbers(shard.cast, stored, parts) for shard in shards if shard.cast}
    feeds.update(_joined_and_cut(shards, stored, parts, save_path))
    return restore(_Feeding(sess, feeds), save_path)


def _joined_and_cut(shards, stored, parts, save_path):
    """Returns what to feed in place of what TensorFlow cannot read: name of a Tensor -> float32 array."""
    places = {read: name for shard in shards for read, name in shard.wide.items()}
    wanted = restore_ops.unreadable(places, stored, parts)
    reader = files.Reader(save_path)
    wholes = {name: reader.read(name, "float16") for name in sorted({read.name for read in wanted})}
    regions = {read: index.region(*index.bounds(read.slice_spec)) if read.slice_spec else ... for read in wanted}
    return {places[read]: wholes[read.name][regions[read]].astype(np.float32) for read in wanted}


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


def _missing_message(save_path, missing, known):
    lines = ["npu_shim: %s lacks %d of the tensors to restore:" % (save_path, len(missing))]
    return "\n".join(lines + ["  %s%s" % (name, nearest(name, known)) for name in sorted(missing)])


def _mismatches(reads, stored, options, reshape):
    """Returns a row of the table for each read whose stored dtype cannot be cast or whose shape differs."""
    rows = []
    for read in reads:
        if read.name not in stored:
            continue
        entry = stored[read.name]
        castable = entry.dtype in options["stored_dtypes"] and read.dtype in CASTABLE
        counter = selection.LOSS_SCALE.search(read.name) and {entry.dtype, read.dtype} <= set(COUNTERS)
        bridged = counter and options["init_missing_loss_scale"]
        fits = read.shape is None or entry.shape == read.shape or (
            reshape and np.prod(entry.shape) == np.prod(read.shape)
        )
        if not fits or not (entry.dtype == read.dtype or castable or bridged):
            shape = "any" if read.shape is None else str(list(read.shape))
            rows.append((read.name, entry.dtype.name, read.dtype.name, str(list(entry.shape)), shape))
    return rows


def _table(save_path, rows):
    heads = ("tensor", "file dtype", "variable dtype", "file shape", "variable shape")
    widths = [max(len(row[i]) for row in [heads, *rows]) for i in range(len(heads))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in [heads, *rows]]
    return "npu_shim: %s cannot be restored, nothing was changed:\n%s" % (save_path, "\n".join(lines))
