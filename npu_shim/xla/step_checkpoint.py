"""Saves and restores a compiled step's state in TensorFlow checkpoints, under tf.train.Saver's names."""

from __future__ import annotations

import os
import re
import time
from typing import Any, Iterable, Mapping, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from npu_shim.checkpoint.selection import FLOATS
from npu_shim.rewriter.errors import ConfigError, nearest
from npu_shim.step import counters
from npu_shim.xla.passes.writers import VARIABLES, collected_names
from npu_shim.xla.sources import READS

PART = re.compile(r"/part_\d+(?=/|$)")  # TensorFlow appends it to a part's name, before a slot's name


def keys_of(graph: Any, names: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Returns variable name -> (key, slice) in a checkpoint; a part of a partitioned variable is a slice of the whole.

    Args:
        graph: tf.Graph, whose collections or Saver nodes say which variables are parts.
        names: names of variables.
    """
    names = set(names)
    named = collected_names(graph.get_collection(tf.GraphKeys.GLOBAL_VARIABLES))  # one of a container: "v" for "v@c"
    keys = {name: (name if named.get(name) in names else named.get(name, name), "") for name in names}
    keys.update((name, place) for name, place in _saved_parts(graph) if name in keys)
    for variable in graph.get_collection(tf.GraphKeys.GLOBAL_VARIABLES):
        part = variable._get_save_slice_info() if hasattr(variable, "_get_save_slice_info") else None
        if part is not None and variable.op.name in keys:
            keys[variable.op.name] = part.full_name, part.spec
    return keys


def _saved_parts(graph):
    """Yields (variable's name, (key, slice)) for the parts that a graph's Savers write as slices."""
    for op in graph.get_operations():
        if op.type != "SaveV2":
            continue
        names, slices = (tf.get_static_value(tensor) for tensor in op.inputs[1:3])
        for key, part, tensor in zip(names, slices, op.inputs[3:]):
            key, part, source = tf.compat.as_str(key), tf.compat.as_str(part), tensor.op
            while source.type in READS:
                source = source.inputs[0].op
            if part and PART.sub("", source.name) == key:
                yield source.name, (key, part)


def values(prefix: str, graph: Any) -> dict[str, np.ndarray]:
    """Returns variable name -> np.ndarray for a graph's variables that are in a checkpoint.

    Args:
        prefix: path of the checkpoint.
        graph: tf.Graph.

    Raises:
        ConfigError: the checkpoint cannot be read, or variables differ in shape or dtype; all are named.
    """
    wanted = {op.name: op for op in graph.get_operations() if op.type in VARIABLES}
    try:
        reader = tf.train.load_checkpoint(prefix)
        shapes, dtypes = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
        keys = {**keys_of(graph, wanted), **_parts_of(wanted, shapes)}
        known = [name for name in wanted if keys[name][0] in shapes]
        problems = [_problem(_Declared.of(wanted[name]), keys[name], shapes, dtypes) for name in known]
        _raise_any(prefix, problems)
        values = {name: _part(reader.get_tensor(keys[name][0]), keys[name][1]) for name in known}
        values.update((name, reader.get_tensor(name)) for name in shapes if is_of_random_ops(name))
    except ConfigError:
        raise
    except (tf.errors.OpError, ValueError, RuntimeError) as reason:
        raise ConfigError("checkpoint '%s' cannot be read: %s" % (prefix, str(reason).splitlines()[0])) from reason
    return values


def is_of_random_ops(name: str) -> bool:
    """Whether a variable of a step is the state of its random ops, which the script does not have."""
    return name.startswith(counters.STATE)


def _parts_of(wanted, shapes):
    """Places of variables w/part_0, w/part_1, ... of a graph in a checkpoint that has none of them, but a whole w.

    A graph without collections and Savers does not say that they are parts. Their shapes do: they differ in one axis at
    most, in which they add up to the whole.
    """
    parts = {}
    for name, op in wanted.items():
        match = PART.search(name)
        if match and name not in shapes and PART.sub("", name) in shapes:
            number = int(match.group().rpartition("_")[2])
            parts.setdefault(PART.sub("", name), {})[number] = name, _Declared.of(op).shape.as_list()
    return {
        name: place for key, slices_of_key in parts.items() for name, place in _slices(key, slices_of_key, shapes[key])
    }


def _slices(key, parts, whole):
    """Yields (variable's name, (key, slice)) for the parts of a variable, number -> (name, shape), that make it up."""
    parts = [parts[number] for number in sorted(parts)] if sorted(parts) == list(range(len(parts))) else []
    axes = [axis for axis, size in enumerate(whole) if sum(shape[axis] for _, shape in parts) == size]
    rest = lambda axis, shape: (shape[:axis], shape[axis + 1 :])  # noqa: E731
    for axis in axes[:1]:
        if all(rest(axis, shape) == rest(axis, whole) for _, shape in parts):
            start = 0
            for name, shape in parts:
                extents = ["%d,%d" % (start, size) if k == axis else "-" for k, size in enumerate(shape)]
                yield name, (key, "%s %s" % (" ".join(map(str, whole)), ":".join(extents)))
                start += shape[axis]


class _Declared(NamedTuple):
    """A variable's dtype and shape in the graph."""

    dtype: Any
    shape: Any

    @classmethod
    def of(cls, op):
        """Reads them from a variable's operation."""
        return cls(op.get_attr("dtype"), tf.TensorShape(op.get_attr("shape")))


def _part(whole, spec):
    """The part of an array that a slice specifies, "5 2 3,2:0,2" or "5 2 3,2:-"."""
    if not spec:
        return whole
    extents = [extent.split(",") for extent in spec.split()[-1].split(":")]
    return whole[tuple(slice(None) if len(e) == 1 else slice(int(e[0]), int(e[0]) + int(e[1])) for e in extents)]


def save(prefix: str | os.PathLike, values: Mapping[str, Any], keys: Mapping[str, tuple[str, str]]) -> str:
    """Writes values (variable name -> tensor or array), makes the checkpoint its folder's latest, returns `prefix`.

    Raises:
        ConfigError: the checkpoint cannot be written.
    """
    prefix = os.fspath(prefix)
    try:
        _write(prefix, values, keys)
    except (OSError, tf.errors.OpError) as reason:
        why = getattr(reason, "strerror", None) or str(reason).splitlines()[0]
        raise ConfigError("checkpoint '%s' cannot be written: %s" % (prefix, why)) from reason
    return prefix


def _write(prefix, values, keys):
    folder = os.path.dirname(prefix)
    if folder:
        os.makedirs(folder, exist_ok=True)
    names = sorted(values)
    places = [keys[name] for name in names]
    tf.raw_ops.SaveV2(
        prefix=prefix,
        tensor_names=[key for key, _ in places],
        shape_and_slices=[part for _, part in places],
        tensors=[tf.convert_to_tensor(values[name]) for name in names],
    )
    _make_latest(folder or ".", prefix)


def _make_latest(folder, prefix):
    """Adds a checkpoint to its folder's list, which a Saver continues, as the latest; paths are relative to it."""
    relative = lambda path: os.path.relpath(path, folder)  # noqa: E731
    known = tf.train.get_checkpoint_state(folder)
    state = tf.train.generate_checkpoint_state_proto(folder, relative(prefix))
    paths = [relative(path) for path in (known.all_model_checkpoint_paths if known else ())]
    kept = [number for number, path in enumerate(paths) if path != relative(prefix)]
    state.model_checkpoint_path = relative(prefix)
    state.all_model_checkpoint_paths[:] = [*(paths[number] for number in kept), relative(prefix)]
    if known and len(known.all_model_checkpoint_timestamps) == len(paths):
        times = [known.all_model_checkpoint_timestamps[number] for number in kept]
        state.all_model_checkpoint_timestamps[:] = [*times, time.time()]
        state.last_preserved_timestamp = known.last_preserved_timestamp
    unfinished = os.path.join(folder, "checkpoint.unfinished")
    with open(unfinished, "w", encoding="utf-8") as file:
        file.write(str(state))
    os.replace(unfinished, os.path.join(folder, "checkpoint"))


def load(
    prefix: str | os.PathLike, variables: Mapping[str, Any], keys: Mapping[str, tuple[str, str]]
) -> dict[str, Any]:
    """Returns variable name -> np.ndarray for a dict of StateVariables; the state of random ops may be missing.

    Raises:
        ConfigError: no checkpoint, or variables that it does not have in this shape and dtype; all are named.
    """
    prefix = os.fspath(prefix)
    try:
        reader = tf.train.load_checkpoint(prefix)
    except (tf.errors.OpError, ValueError) as reason:
        raise ConfigError("'%s' is not a TensorFlow checkpoint: %s" % (prefix, reason)) from reason
    shapes, dtypes = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
    names = sorted(name for name in variables if not is_of_random_ops(name) or name in shapes)
    declared = {name: _Declared(variables[name].dtype, variables[name].static) for name in names}
    _raise_any(prefix, [_problem(declared[name], keys[name], shapes, dtypes) for name in names])
    if not names:
        return {}
    if tf.io.gfile.isdir(prefix):
        prefix = tf.train.latest_checkpoint(prefix)
    tensors = tf.raw_ops.RestoreV2(
        prefix=prefix,
        tensor_names=[keys[name][0] for name in names],
        shape_and_slices=[keys[name][1] for name in names],
        dtypes=[variables[name].dtype for name in names],
    )
    return {name: tensor.numpy() for name, tensor in zip(names, tensors)}


def _raise_any(prefix, problems):
    problems = ["checkpoint '%s': %s" % (prefix, problem) for problem in problems if problem]
    if problems:
        raise ConfigError(*problems)


def _problem(variable, place, shapes, dtypes):
    key, part = place
    if key not in shapes:
        return "no variable '%s'%s" % (key, nearest(key, shapes))
    if dtypes[key] != variable.dtype:
        stored, expected = dtypes[key].name, variable.dtype.name
        hint = "; npu-shim migrate-checkpoint converts it" if {stored, expected} <= set(FLOATS) else ""
        return "'%s' is %s, the step has %s%s" % (key, stored, expected, hint)
    expected = tf.TensorShape([int(size) for size in part.split()[:-1]]) if part else variable.shape
    if not expected.is_compatible_with(shapes[key]):
        return "'%s' has shape %s, the step has %s" % (key, list(shapes[key]), expected.as_list())
    return None
