"""Migrates one checkpoint: plan, cast one tensor at a time, write, verify, publish.

Source: published migration scripts and their gaps; the file formats are those of TensorFlow 1.15.5 and 2.15.1.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from typing import Any, Iterator

import numpy as np

import npu_shim
from npu_shim.checkpoint import files, ranges
from npu_shim.checkpoint.plan import OBJECT_GRAPH, MigrationPlan, Options, Overflow, plan
from npu_shim.checkpoint.ranges import RangeReport
from npu_shim.rewriter.errors import ConfigError, nearest

LOST = 0.01  # share of a tensor's values that may become zero without a warning; few trained weights do


@dataclasses.dataclass(frozen=True)
class Migration:
    """The plan of a migration and the losses of its casts.

    Attributes:
        source: str, a prefix.
        plan: MigrationPlan.
        ranges: dict of a source name to the RangeReport of its cast; only casts to a narrower dtype are in it.
        checksums: dict of a new name to the SHA-256 of its bytes in the result.
    """

    source: str
    plan: MigrationPlan
    ranges: dict
    checksums: dict

    def total(self) -> RangeReport:
        """Returns the RangeReport of all casts."""
        return sum(self.ranges.values(), RangeReport())


def migrate_checkpoint(
    source: str,
    target: str,
    to: str,
    on_overflow: str = "error",
    overwrite: bool = False,
    update_state: str = "no",
    verify: bool = True,
    progress: bool = False,
    **options: Any
) -> Migration:
    """Writes the checkpoint `source` again at `target`, with its model tensors as `to`.

    The target is complete and verified, or it is absent; the source and its folder's `checkpoint` file are not touched.
    Partitioned tensors of V2 checkpoints keep their parts: TensorFlow reads float16 parts only as they are stored.
    No `.meta` file is written: a graph has the dtypes it was built with.

    Args:
        source: str or path, a prefix or a folder. V1, V2, sharded, partitioned and object-based checkpoints are read.
        target: str or path, a prefix; not the source's.
        to: "float16", "bfloat16" or "float32", or TensorFlow's dtype of that name.
        on_overflow: for finite values beyond the new dtype: "error" writes nothing, "inf", or "clamp" to its largest.
        overwrite: bool, replace a target that exists.
        update_state: "no", "append" or "replace", see `files.update_state`.
        verify: bool, read everything again before the target appears.
        progress: bool, a progress bar on standard error when that is a terminal and tqdm is installed.
        **options: the other fields of `plan.Options`.

    Returns:
        Migration.

    Raises:
        ConfigError: invalid options or files, or overflow under "error".
        OSError, tf.errors.OpError: the files cannot be read or written.
    """
    source, target = files.find(source), os.fspath(target)
    _check(source, target, on_overflow, overwrite, update_state)
    _check_names(options)
    reader = files.Reader(source)
    migration_plan = plan(reader.tensors(), Options(to=getattr(to, "name", to), **options))
    files.remove_leftovers(target)
    os.makedirs(os.path.dirname(os.path.abspath(target)), exist_ok=True)
    writer = files.Writer(target)
    try:
        migration = scan(source, migration_plan, on_overflow, writer, progress)
        if on_overflow == "error" and migration.total().overflow:
            raise Overflow(*overflow_problems(migration))
        writer.finish()
        if verify:
            _verify(writer.prefix, migration)
        writer.publish(manifest(migration, on_overflow))
    finally:
        writer.close()
    if update_state != "no":
        files.update_state(target, update_state)
    return migration


def scan(
    source: str, migration_plan: Any, on_overflow: str = "inf", writer: Any = None, progress: bool = False
) -> Migration:
    """Casts every tensor of a plan, one at a time, and accounts for what is lost.

    Args:
        source: str, a prefix.
        migration_plan: MigrationPlan for it.
        on_overflow: as in `migrate_checkpoint`.
        writer: files.Writer, or None to write nothing.
        progress: as in `migrate_checkpoint`.

    Returns:
        Migration; without a writer it has no checksums.
    """
    reader = files.Reader(source)
    lost, checksums = {}, {}
    kept = migration_plan.kept()
    for action in _with_bar(kept, progress):
        array, report = _result(reader, action, migration_plan, on_overflow == "clamp")
        if report is not None:
            lost[action.name] = report
        if writer is not None:
            checksums[action.new_name] = files.checksum(array)
            writer.add(action.new_name, array, action.new_dtype, reader.slices.get(action.name, ()))
    return Migration(source, migration_plan, lost, checksums)


def overflow_problems(migration: Migration) -> list[str]:
    """Returns a sentence for each tensor with finite values beyond the new dtype."""
    to = migration.plan.options.to
    return [
        "'%s' has %d of %d values beyond %s, the largest %g (see --on-overflow, --exclude)"
        % (name, report.overflow, report.count, to, report.largest)
        for name, report in sorted(migration.ranges.items())
        if report.overflow
    ]


def warnings(migration: Migration) -> list[str]:
    """Returns a sentence for each ambiguous name and each tensor that loses values to zero."""
    ambiguous = [
        "'%s' could be the model's or an optimizer's: it is neither narrowed nor dropped (see --include, --exclude, "
        "--drop)" % name
        for name in migration.plan.ambiguous
    ]
    return ambiguous + [
        "'%s' loses %d of %d values to zero (see --exclude)" % (name, report.flushed, report.count)
        for name, report in sorted(migration.ranges.items())
        if report.flushed > LOST * report.count
    ]


def manifest(migration: Migration, on_overflow: str) -> str:
    """Returns the text of `<target>.manifest.json`: the same for the same source, options and version."""
    tensors = [
        dict(dataclasses.asdict(action), sha256=migration.checksums[action.new_name])
        for action in migration.plan.kept()
    ]
    content = {
        "npu_shim": npu_shim.__version__,
        "source": os.path.basename(migration.source),
        "options": dict(dataclasses.asdict(migration.plan.options), on_overflow=on_overflow),
        "tensors": tensors,
        "dropped": [a.name for a in migration.plan.actions if a.kind == "drop"],
        "ranges": {name: dataclasses.asdict(report) for name, report in sorted(migration.ranges.items())},
    }
    return json.dumps(content, indent=1, sort_keys=True) + "\n"


def differences(first: str, second: str) -> Iterator[tuple[str, str]]:
    """Yields (name, sentence) for each tensor in which two checkpoints differ, sorted by name; values are compared."""
    readers = [files.Reader(files.find(prefix)) for prefix in (first, second)]
    maps = [reader.tensors() for reader in readers]
    for name in sorted(set(maps[0]) | set(maps[1])):
        if name not in maps[0] or name not in maps[1]:
            yield name, "only in %s" % (first if name in maps[0] else second)
            continue
        infos = [m[name] for m in maps]
        if infos[0] != infos[1]:
            yield name, "%s %s and %s %s" % (infos[0].dtype, infos[0].shape, infos[1].dtype, infos[1].shape)
        if infos[0].shape == infos[1].shape:
            arrays = [_comparable(r.read(name, i.dtype), i.dtype) for r, i in zip(readers, infos)]
            told = _value_difference(*arrays)
            if told:
                yield name, told


def _check(source, target, on_overflow, overwrite, update_state):
    problems = []
    if any(os.path.realpath(source + ending) == os.path.realpath(target + ending) for ending in ("", ".index")):
        problems.append("the target '%s' is the source; a checkpoint is never migrated in place" % target)
    elif files.is_there(target) and not overwrite:
        problems.append("the target '%s' exists (see --overwrite)" % target)
    if os.path.isdir(target) or not os.path.basename(target):
        problems.append("the target '%s' is a folder; give the prefix of the new checkpoint" % target)
    for name, value, accepted in (
        ("on_overflow", on_overflow, ("error", "inf", "clamp")),
        ("update_state", update_state, ("no", "append", "replace")),
    ):
        if value not in accepted:
            problems.append("%s: '%s' is not one of %s" % (name, value, ", ".join(accepted)))
    if problems:
        raise ConfigError(*problems)


def _check_names(options):
    known = [field.name for field in dataclasses.fields(Options)]
    unknown = [name for name in options if name not in known]
    if unknown:
        raise ConfigError(*("there is no option '%s'%s" % (name, nearest(name, known)) for name in unknown))


def _result(reader, action, migration_plan, clamp):
    """Returns (array of the result, RangeReport or None)."""
    if action.kind == "create":
        return np.asarray(action.value, np.dtype(action.new_dtype)), None
    array = reader.read(action.name, action.dtype)
    if action.name == OBJECT_GRAPH:
        return _renamed_object_graph(array, migration_plan), None
    if action.kind == "keep":
        return array, None
    if action.new_dtype not in ranges.HOLD:
        return array.astype(np.dtype(action.new_dtype)), None
    array, report = ranges.cast(array, action.dtype, action.new_dtype, clamp)
    return array, None if action.new_dtype == "float32" else report


def _renamed_object_graph(array, migration_plan):
    """Returns the object graph whose keys follow the plan's renames; keys of dropped tensors are left out."""
    names = {a.name: a.new_name for a in migration_plan.kept() if a.kind != "create"}
    if all(old == new for old, new in names.items()) and len(names) == len(migration_plan.actions):
        return array
    try:
        from tensorflow.core.protobuf import trackable_object_graph_pb2 as object_graph_pb2
    except ImportError:  # TensorFlow 1.15
        from tensorflow.core.protobuf import checkpointable_object_graph_pb2 as object_graph_pb2
    proto = getattr(object_graph_pb2, "TrackableObjectGraph", None) or object_graph_pb2.CheckpointableObjectGraph
    graph = proto.FromString(bytes(array[()]))
    for node in graph.nodes:
        attributes = [a for a in node.attributes if a.checkpoint_key in names]
        for attribute in attributes:
            attribute.checkpoint_key = names[attribute.checkpoint_key]
        kept = [type(a).FromString(a.SerializeToString()) for a in attributes]
        del node.attributes[:]
        node.attributes.extend(kept)
    return np.array(graph.SerializeToString(deterministic=True), object)


def _verify(prefix, migration):
    """Reads the written checkpoint again and compares names, dtypes, shapes and checksums."""
    reader = files.Reader(prefix)
    tensors = reader.tensors()
    expected = {a.new_name: a for a in migration.plan.kept()}
    wrong = sorted(set(tensors) ^ set(expected))
    for name in sorted(set(tensors) & set(expected)):
        action = expected[name]
        same = (tensors[name].dtype, tensors[name].shape) == (action.new_dtype, tuple(action.shape))
        if not same or files.checksum(reader.read(name, action.new_dtype)) != migration.checksums[name]:
            wrong.append(name)
    if wrong:
        raise OSError("npu_shim: the written checkpoint does not read back as it was written: %s" % ", ".join(wrong))


def _comparable(array, dtype):
    if dtype in ("float16", "bfloat16"):
        return ranges.cast(array, dtype, "float32")[0]
    return array


def _value_difference(first, second):
    if first.dtype == object or second.dtype == object:
        return "" if np.array_equal(first, second) else "other strings"
    both_nan = (first != first) & (second != second)  # integers have no isnan
    unequal = (first != second) & ~both_nan
    if not unequal.any():
        return ""
    with np.errstate(invalid="ignore", over="ignore"):
        gap = np.abs(first[unequal].astype(np.float64) - second[unequal].astype(np.float64))
    return "%d of %d values differ, by at most %g" % (np.count_nonzero(unequal), unequal.size, gap.max())


def _with_bar(actions, wanted):
    if not (wanted and sys.stderr.isatty()):
        return actions
    try:
        from tqdm import tqdm
    except ImportError:
        return actions
    return tqdm(actions, unit="tensor")

