"""Dumping tensors of a session's runs: the options enable_dump and enable_dump_debug.

If its NpuOptimizer entry has these options, a session also fetches tensors that the run computes anyway: those of the
chosen ops and steps for enable_dump, all float tensors for enable_dump_debug, which searches for the first op whose
output has INF or NAN although its inputs have none. Tensors inside loops and branches cannot be fetched and are
omitted. Runs are numbered from 0 for each set of fetches, as the NPU numbers them for each of its graphs. The number of
a graph of another session, or of one that an earlier program left in the folder, is not used again.

dump_path/graph_0/step_5/index.json, dense.MatMul.output_0.npy; dump_path/graph_0/step_7/overflow.json
index.json names op, tensor and dtype of each file; a bfloat16 tensor's file holds its values as float32.
Source: Ascend adapter of 2023-12 (r1.15), options of NpuOptimizer; the files are numpy's, not the NPU's.
"""

from __future__ import annotations

import collections
import functools
import hashlib
import itertools
import json
import logging
import os
import threading
from typing import Any, Iterable, Mapping

import numpy as np
import tensorflow.compat.v1 as tf

from npu_shim.options.reports import ledger
from npu_shim.options.watch_options import dump_folder, parse_steps
from npu_shim.rewriter import tf_internals
from npu_shim.rewriter.errors import ConfigError
from npu_shim.rewriter.graph.walks import givers, reached
from npu_shim.session.interception import interceptors

LOG = logging.getLogger("npu_shim")
# ops whose results are infinite or NaN wherever an input is
HANDS_ON = frozenset(
    ["Add", "AddN", "AddV2", "Cast", "Identity", "Mean", "Mul", "Neg", "Reshape", "Square", "Sub", "Sum"]
)
LONGEST_STEM = 160  # of a file's name, which may have 255 bytes
_lock = threading.Lock()
_numbers = {}  # real path of a dump_path -> numbers of graphs that this program has given there


def attach(session: tf.Session, values: Mapping[str, Any]) -> None:
    """Makes a session dump its runs as its options say.

    Args:
        session: tf.Session.
        values: dict with the dump options that are set, see `options`.
    """
    interceptors.watch(session, functools.partial(_run_and_dump, values, {}))


def _run_and_dump(values, numbers, session, once, fetches, feed_dict, options, run_metadata):
    handler = tf_internals.fetch_handler(session.graph, fetches)
    fetched = [tensor.op for tensor in handler.fetches()] + list(handler.targets())
    folder = _next_folder(values, numbers, fetched)
    if folder is None:
        return once(fetches, feed_dict, options, run_metadata)
    ledger.note(ledger.DUMPED)
    operations = upstream(session.graph, fetched, feed_dict or {})
    tensors = _tensors_to_fetch(operations, session.graph, values)
    result, arrays = once([fetches, tensors], feed_dict, options, run_metadata)
    seen = {tensor.name: array for tensor, array in zip(tensors, arrays)}
    if values.get("enable_dump"):
        _write_tensors(folder, _ops_to_dump(operations, values), seen, values.get("dump_data") or "tensor")
    if values.get("enable_dump_debug"):
        _report_overflow(folder, operations, seen)
    return result


def _next_folder(values, numbers, fetched):
    """Counts the runs of each set of fetches; returns the folder for this run's dump, or None."""
    try:
        wanted = parse_steps(values.get("dump_step"))
        path = dump_folder(values.get("dump_path"))
    except ConfigError as error:
        raise tf.errors.InternalError(None, None, str(error)) from error
    key = tuple(sorted({operation.name for operation in fetched}))
    if key not in numbers:
        numbers[key] = [_new_number(path), 0]
    graph, step = numbers[key]
    numbers[key][1] += 1
    if wanted is not None and not any(first <= step <= last for first, last in wanted):
        return None
    return os.path.join(_graph_folder(path, graph), "step_%d" % step)


def _new_number(path):
    """Returns a number that no graph in a dump_path has, neither another session's nor an earlier program's."""
    with _lock:
        taken = _numbers.setdefault(os.path.realpath(path), set())
        number = next(n for n in itertools.count() if n not in taken and not os.path.exists(_graph_folder(path, n)))
        taken.add(number)
    return number


def _graph_folder(path, number):
    return os.path.join(path, "graph_%d" % number)


def upstream(graph: tf.Graph, fetched: Iterable[tf.Operation], feeds: Iterable[Any]) -> list[tf.Operation]:
    """Returns the fetched ops and their ancestors, in the order of the graph.

    Args:
        graph: tf.Graph.
        fetched: list of tf.Operation.
        feeds: the feed_dict; nothing is computed for a fed tensor.
    """
    fed = {getattr(key, "name", key) for key in feeds}
    needed = set(reached(fetched, lambda operation: givers(operation, fed)))
    # the value of a fed tensor is known all the same
    needed.update([tensor.op for operation in needed for tensor in operation.inputs if tensor.name in fed])
    return [operation for operation in graph.get_operations() if operation in needed]


def in_branches(operations: Iterable[tf.Operation]) -> set[tf.Operation]:
    """Returns those of the ops, in the order of the graph, that are in a branch or a loop: behind a Switch or an Enter.

    They may not run, or run more than once. Gradients of a conditional, and loops and branches of an imported GraphDef,
    are so although no control-flow context says it.
    """
    depth: dict[Any, int] = {}
    for op in operations:
        depth[op] = max((depth.get(before, 0) for before in givers(op)), default=0)
        of_loop = any(tensor.op.type == "LoopCond" for tensor in op.inputs)  # such a Switch is within what Enter opens
        if op.type in ("Enter", "RefEnter") or (op.type in ("Switch", "RefSwitch") and not of_loop):
            depth[op] += 1
        closes = op.type == "Exit" or (op.type == "Merge" and all(tensor.op in depth for tensor in op.inputs))
        if closes and depth[op]:
            depth[op] -= 1
    return {op for op, number in depth.items() if number}


def _can_be_fetched(tensor, graph):
    # a value inside a loop, or inside a branch that was not taken, does not exist for a fetch
    return (
        tensor.op._get_control_flow_context() is None
        and graph.is_fetchable(tensor)
        and (tensor.dtype.is_floating or tensor.dtype.is_integer or tensor.dtype.is_bool)
        and not tensor.dtype._is_ref_dtype
    )


def _tensors_to_fetch(operations, graph, values):
    tensors = {}
    debug = values.get("enable_dump_debug")
    for _, sides in _ops_to_dump(operations, values) if values.get("enable_dump") else ():
        tensors.update((tensor.name, tensor) for side in sides.values() for tensor in side)
    for operation in operations if debug else ():
        for tensor in operation.outputs:
            if tensor.dtype.is_floating:
                tensors[tensor.name] = tensor
    inside = in_branches(operations)
    return [tensor for tensor in tensors.values() if _can_be_fetched(tensor, graph) and tensor.op not in inside]


def _ops_to_dump(operations, values):
    """Returns (op, side -> tensors) for the ops of dump_layer (names or scopes, separated by blanks; unset: all)."""
    layers = (values.get("dump_layer") or "").split()
    mode = values.get("dump_mode") or "output"
    sides = ("input", "output") if mode == "all" else (mode,)
    chosen = []
    for operation in operations:
        if not layers or any(operation.name == layer or operation.name.startswith(layer + "/") for layer in layers):
            both = {"input": list(operation.inputs), "output": list(operation.outputs)}
            chosen.append((operation, {side: both[side] for side in sides}))
    return chosen


def _write_tensors(folder, chosen, arrays, data):
    os.makedirs(folder, exist_ok=True)
    index = []
    for operation, sides in chosen:
        for side, tensors in sides.items():
            for number, tensor in enumerate(tensors):
                if tensor.name in arrays:
                    entry = {"op": operation.name, "type": operation.type, "side": side, "number": number}
                    entry.update(_summary(tensor, arrays[tensor.name]))
                    if data == "tensor":
                        entry["file"] = file_name(operation.name, side, number)
                        _save_array(os.path.join(folder, entry["file"]), arrays[tensor.name])
                    index.append(entry)
    _write_json(os.path.join(folder, "index.json"), index)


def file_name(operation: str, side: str, number: int) -> str:
    """Returns the file name of an op's input or output: unique for each op, and short enough for every file system.

    >>> file_name("dense/MatMul", "output", 0), file_name("dense.MatMul", "output", 0)
    ('dense.MatMul.output_0.npy', 'dense%2EMatMul.output_0.npy')
    """
    stem = operation.replace(".", "%2E").replace("/", ".")
    if len(stem) > LONGEST_STEM:
        stem = "%s~%s" % (stem[:LONGEST_STEM], hashlib.sha256(operation.encode()).hexdigest()[:16])
    return "%s.%s_%d.npy" % (stem, side, number)


def _save_array(path, array):
    """Writes an array. numpy's files do not know bfloat16: it is written as float32, which holds all its values."""
    array = np.asarray(array)
    np.save(path, array.astype(np.float32) if array.dtype.kind == "V" else array)


def _summary(tensor, array):
    """Returns a tensor's name, dtype, shape and a summary of its values."""
    array = np.asarray(array)
    summary = {"tensor": tensor.name, "dtype": tensor.dtype.name, "shape": list(array.shape)}
    values = array.astype(np.float64).ravel()
    finite = values[np.isfinite(values)]
    summary["not_finite"] = int(values.size - finite.size)
    if finite.size:
        summary.update(min=float(finite.min()), max=float(finite.max()), mean=float(finite.mean()))
    return summary


def first_overflow(operations: Iterable[tf.Operation], arrays: Mapping[str, Any]) -> tf.Operation | None:
    """Returns the first op with INF or NAN in an output and none in its inputs, or None.

    An op is passed over if its readers are finite and could not be, had they read it: Grappler has given them another
    form of it, Square for Mul, and only the dump has kept it.

    Args:
        operations: the ops that ran, in the order of the graph.
        arrays: dict of tensor name to numpy array, for the tensors whose values are known.
    """
    bad = {name for name, array in arrays.items() if not np.isfinite(np.asarray(array, np.float64)).all()}
    if not bad:
        return None
    operations, readers = list(operations), collections.defaultdict(list)
    # the memory of a reference variable is fetched as the step leaves it
    bad -= {operation.outputs[0].name for operation in operations if _reads_memory(operation)}
    for operation in operations:
        for tensor in operation.inputs:
            readers[tensor.name].append(operation)
    finite = arrays.keys() - bad
    for operation in operations:
        # a constant may be infinite on purpose, as masks are
        from_itself = operation.type != "Const" and not any(tensor.name in bad for tensor in operation.inputs)
        if from_itself and any(tensor.name in bad for tensor in operation.outputs):
            reading = [reader for tensor in operation.outputs for reader in readers[tensor.name]]
            if not reading or not all(_cannot_have_read(reader, finite) for reader in reading):
                return operation
    return None


def _reads_memory(operation):
    return operation.type == "Identity" and operation.inputs[0].dtype._is_ref_dtype


def _cannot_have_read(reader, finite):
    """Whether a reader's outputs would be infinite or NaN, had it read what is so."""
    return reader.type in HANDS_ON and all(output.name in finite for output in reader.outputs)


def _report_overflow(folder, operations, arrays):
    operation = first_overflow(operations, {name: array for name, array in arrays.items() if _is_float(array)})
    if operation is None:
        return
    os.makedirs(folder, exist_ok=True)
    report = {"op": operation.name, "type": operation.type}
    for side, tensors in (("inputs", operation.inputs), ("outputs", operation.outputs)):
        known = [(number, tensor) for number, tensor in enumerate(tensors) if tensor.name in arrays]
        report[side] = [_summary(tensor, arrays[tensor.name]) for _, tensor in known]
        for number, tensor in known:
            name = file_name(operation.name, side[:-1], number)
            _save_array(os.path.join(folder, name), arrays[tensor.name])
    _write_json(os.path.join(folder, "overflow.json"), report)
    ranges = ", ".join("%s in [%.6g, %.6g]" % (i["tensor"], i["min"], i["max"]) for i in report["inputs"] if "min" in i)
    LOG.warning("npu_shim: overflow begins in %s '%s' (%s), see %s", operation.type, operation.name, ranges, folder)


def _is_float(array):
    # bfloat16 is no floating type of numpy's
    return np.asarray(array).dtype.kind in "fV" or np.asarray(array).dtype.name == "bfloat16"


def _write_json(path, content):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(content, file, indent=1, sort_keys=True)
        file.write("\n")
