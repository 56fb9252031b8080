"""Finds what a Saver's restore op reads from a file, and the values to feed in its place."""

from __future__ import annotations

import dataclasses
from typing import Any, Iterable, Mapping

import numpy as np
import tensorflow.compat.v1 as tf

from npu_shim.checkpoint import files, index
from npu_shim.loss_scale.checkpoints.names import fits
from npu_shim.rewriter.graph.walks import givers, reached


@dataclasses.dataclass(frozen=True)
class Target:
    """One tensor that the restore op reads.

    Attributes:
        name: str, in the checkpoint.
        part: str, which part of it, as TensorFlow writes it: "SIZE SIZE START,LENGTH:START,LENGTH"; "" is the whole.
        dtype: str, of the variable.
        shape: tuple of int, of the whole tensor, or None where it may be any.
        tensor: str, the name of the Tensor that arrives in the variable.
    """

    name: str
    part: str
    dtype: str
    shape: tuple[int, ...] | None
    tensor: str

    def fits(self, stored: Any, castable: Any) -> bool:
        """Whether it is restored as it is from (dtype, shape) of the same name."""
        same = self.dtype == stored[0] or castable
        return same and fits((self.dtype, self.shape), stored, castable)


def targets(saver: tf.train.Saver, graph: tf.Graph) -> list[Target]:
    """Returns the Targets of a Saver that is built."""
    shapes = {name: _shape(variable) for name, variable in _variables(saver, graph).items()}
    if saver._builders_restore is None:
        restored = _read_by(graph.get_operation_by_name(saver.saver_def.restore_op_name))
    else:
        shards = saver._builders_restore.args[1]
        restored = [(r.name, r.slice_spec, r.dtype, t) for shard in shards for r, t in zip(shard.reads, shard.results)]
    return [
        Target(name, part, dtype.name, _whole(part) if part else shapes.get(name), tensor)
        for name, part, dtype, tensor in restored
    ]


def values(wanted: Iterable[Target], sources: Mapping[str, str | None], stored: Any, prefix: str) -> dict[str, Any]:
    """Returns what to feed: name of a Tensor -> numpy array in the variable's dtype.

    Args:
        wanted: list of Target.
        sources: name of a Target -> name in the file, or None where the value has no meaning.
        stored: name in the file -> (dtype name, shape).
        prefix: str, the checkpoint.
    """
    reader = files.Reader(prefix)
    feeds = {}
    for target in wanted:
        source = sources[target.name]
        if source is None:
            feeds[target.tensor] = np.zeros(target.shape or (), _numpy(target.dtype))
            continue
        value = reader.read(source, stored[source][0])
        value = value.view(_numpy("bfloat16")) if stored[source][0] == "bfloat16" else value
        value = value[index.region(*index.bounds(target.part))] if target.part else value
        feeds[target.tensor] = _convert(value, target)
    return feeds


def initializers(saver: tf.train.Saver, graph: tf.Graph, names: Iterable[str]) -> list[tf.Operation]:
    """Returns the initializer ops of the Saver's variables of these names."""
    variables = _variables(saver, graph)
    return [variables[name].initializer for name in sorted(names)]


def _convert(value, target):
    if target.dtype == "string":
        return value
    with np.errstate(over="ignore"):
        result = value.astype(_numpy(target.dtype))
    if target.dtype == "float16" and np.count_nonzero(np.isinf(result)) > np.count_nonzero(np.isinf(value)):
        tf.logging.warning("npu_shim: values beyond 65504 became infinite in float16: tensor %s", target.name)
    return result


def _variables(saver, graph):
    given = saver._var_list
    if given is None:
        with graph.as_default():
            given = tf.global_variables()
    if isinstance(given, dict):
        return {name: variable for name, variable in given.items() if hasattr(variable, "initializer")}
    return {v.op.name: v for v in given if hasattr(v, "initializer") and hasattr(v, "op")}


def _shape(variable):
    shape = getattr(variable, "shape", None)
    return tuple(shape.as_list()) if shape is not None and shape.is_fully_defined() else None


def _read_by(restore_op):
    """Returns (name, part, dtype, name of the Tensor) of all that the RestoreV2 ops behind a restore op read."""
    restored = []
    for op in reached([restore_op], givers):
        if op.type == "RestoreV2":
            names, parts = (tf.make_ndarray(op.inputs[i].op.get_attr("value")) for i in (1, 2))
            restored += [
                (name.decode(), part.decode(), output.dtype, output.name)
                for name, part, output in zip(names, parts, op.outputs)
            ]
    return restored


def _whole(part):
    return tuple(int(size) for size in part.split()[:-1])


def _numpy(dtype):
    return tf.as_dtype(dtype).as_numpy_dtype
