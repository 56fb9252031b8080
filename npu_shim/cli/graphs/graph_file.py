"""Reads and writes graph files: GraphDef as .pb or .pbtxt, MetaGraphDef as .meta, each also gzipped; and SavedModels.

A SavedModel is named by its folder or by its saved_model.pb; a checkpoint by its folder or prefix stands for its .meta.
"""

from __future__ import annotations

import collections
import errno
import gzip
import io
import os
import re
import zlib

import tensorflow.compat.v1 as tf
from google.protobuf import text_format
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from npu_shim.pjrt import atomic_write
from npu_shim.rewriter.analysis import order
from npu_shim.rewriter.errors import ConfigError
from npu_shim.rewriter.ir import graphdef

SUFFIXES = (".pb", ".pbtxt", ".meta")
SAVED_MODEL = ("saved_model.pb", "saved_model.pbtxt")
CHECKPOINT_FILE = re.compile(r"\.(index|data-\d+-of-\d+)$")


def read(path: str) -> tuple[tf.GraphDef, list[str]]:
    """Reads a graph.

    Args:
        path: of a graph file, of a SavedModel (of several graphs in it the one for training, else the first), or of
            a checkpoint with its .meta.

    Returns:
        (GraphDef, names of what to run by default, list of str). These are the operations in the collection `train_op`
        of a MetaGraphDef; of a SavedModel without one the outputs of its signatures.

    Raises:
        ConfigError: the file is missing, has another suffix, or is not a graph that can run: an input names no node,
            or nodes wait for one another.
    """
    path = file_of(path)
    if not os.path.exists(path):
        raise ConfigError("graph file '%s' cannot be read: %s" % (path, os.strerror(errno.ENOENT)))
    kind, data = _kind(path), content(path)
    try:
        graph, targets = _parse(kind, data, os.path.basename(path) in SAVED_MODEL)
    except (DecodeError, text_format.ParseError, UnicodeDecodeError, ValueError) as reason:
        raise ConfigError("'%s' is not a graph in %s format (%s)" % (path, kind, reason)) from reason
    if not graph.node or not all(node.name and node.op for node in graph.node):
        raise ConfigError("'%s' is not a graph in %s format: it has no operations" % (path, kind))
    counts = collections.Counter(node.name for node in graph.node)
    twice = sorted(name for name in counts if counts[name] > 1)
    if twice:
        raise ConfigError("'%s' is not a graph in %s format: it has two nodes '%s'" % (path, kind, twice[0]))
    cycle = order.cycle(graphdef.read(graph).graph)
    if cycle:
        way = " -> ".join("'%s'" % node.name for node in (*cycle, cycle[0]))
        raise ConfigError("'%s' has a cycle that is no loop: %s" % (path, way))
    return graph, targets


def content(path: str) -> bytes:
    """Reads a graph file, unzipped; ConfigError if it cannot be read."""
    try:
        with (gzip.open if path.endswith(".gz") else open)(path, "rb") as f:
            data: bytes = f.read()
            return data
    except (OSError, EOFError, zlib.error) as reason:
        why = getattr(reason, "strerror", None) or reason
        raise ConfigError("graph file '%s' cannot be read: %s" % (path, why)) from reason


def saved_model(path: str) -> SavedModel:
    """Reads the graphs of a SavedModel from its saved_model.pb or .pbtxt, which `read` has read before."""
    return _message(SavedModel, _kind(path), content(path))


def write(path: str, graph_def: tf.GraphDef) -> None:
    """Writes a GraphDef as .pb or .pbtxt (with .gz or without); the file appears whole or not at all.

    Raises:
        ConfigError: another suffix, or the file cannot be written.
    """
    kind = _kind(path)
    if kind == ".meta":
        raise ConfigError("'%s': a rewritten graph is written as .pb or .pbtxt" % path)
    data = graph_def.SerializeToString(deterministic=True)
    if kind == ".pbtxt":
        data = text_format.MessageToString(graph_def).encode("utf-8")
    with atomic_write.file(path) as f:
        f.write(_compressed(data) if path.endswith(".gz") else data)


def _compressed(data):
    out = io.BytesIO()
    with gzip.GzipFile(fileobj=out, mode="wb", mtime=0) as f:  # no time stamp: the same graph gives the same bytes
        f.write(data)
    return out.getvalue()


def file_of(path: str) -> str:
    """The graph file that a folder or the prefix of a checkpoint stands for; a file stands for itself.

    Raises:
        ConfigError: a folder has neither a SavedModel nor a checkpoint with its .meta.
    """
    if os.path.isdir(path):
        for name in SAVED_MODEL:
            if os.path.exists(os.path.join(path, name)):
                return os.path.join(path, name)
        prefix = tf.train.latest_checkpoint(path)
        if prefix is None or not os.path.exists(prefix + ".meta"):
            raise ConfigError("the folder '%s' has no SavedModel (%s) and no checkpoint with a .meta file" % (
                path, " or ".join(SAVED_MODEL)
            ))  # fmt: skip
        return prefix + ".meta"
    prefix = CHECKPOINT_FILE.sub("", path)
    return path if os.path.exists(path) and prefix == path else _meta_of(path, prefix)


def _meta_of(path, prefix):
    return prefix + ".meta" if os.path.exists(prefix + ".meta") else path


def _kind(path):
    plain = path[:-3] if path.endswith(".gz") else path
    kind = os.path.splitext(plain)[1]
    if kind not in SUFFIXES:
        raise ConfigError("'%s': a graph file ends in %s, or one of these and .gz" % (path, ", ".join(SUFFIXES)))
    return kind


def _parse(kind, data, saved):
    if kind == ".meta":
        return _of_meta(tf.MetaGraphDef.FromString(data))
    if saved:
        return _of_saved_model(_message(SavedModel, kind, data))
    return _message(tf.GraphDef, kind, data), []


def _message(of, kind, data):
    return text_format.Parse(data.decode("utf-8"), of()) if kind == ".pbtxt" else of.FromString(data)


def _of_meta(meta):
    targets = meta.collection_def["train_op"].node_list.value if "train_op" in meta.collection_def else ()
    return meta.graph_def, list(targets)


def _of_saved_model(saved):
    graphs = [*(meta for meta in saved.meta_graphs if "train" in meta.meta_info_def.tags), *saved.meta_graphs]
    if not graphs:
        raise ValueError("it has no graph")
    graph, targets = _of_meta(graphs[0])
    outputs = {value.name for one in graphs[0].signature_def.values() for value in one.outputs.values() if value.name}
    return graph, targets or sorted(outputs)
