"""Graphs in files: GraphDef as .pb or .pbtxt, MetaGraphDef as .meta, each also with .gz behind it."""

import gzip
import io
import os
import tempfile
import zlib

import tensorflow.compat.v1 as tf
from google.protobuf import text_format
from google.protobuf.message import DecodeError

from .rewriter.errors import ConfigError

SUFFIXES = (".pb", ".pbtxt", ".meta")


def read(path):
    """Reads a graph file.

    Returns:
        (GraphDef, names of the operations in the collection `train_op` of a .meta file: list of str).

    Raises:
        ConfigError: the file is missing, has another suffix, or is no graph.
    """
    kind = _kind(path)
    try:
        with (gzip.open if path.endswith(".gz") else open)(path, "rb") as f:
            data = f.read()
    except (OSError, EOFError, zlib.error) as reason:
        why = getattr(reason, "strerror", None) or reason
        raise ConfigError("graph file '%s' cannot be read: %s" % (path, why)) from reason
    try:
        graph, targets = _parse(kind, data)
    except (DecodeError, text_format.ParseError, UnicodeDecodeError, ValueError) as reason:
        raise ConfigError("'%s' is not a graph in %s format (%s)" % (path, kind, reason)) from reason
    if not graph.node or not all(node.name and node.op for node in graph.node):
        raise ConfigError("'%s' is not a graph in %s format: it has no operations" % (path, kind))
    return graph, targets


def write(path, graph_def):
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
    write_bytes(path, _compressed(data) if path.endswith(".gz") else data)


def _compressed(data):
    out = io.BytesIO()
    with gzip.GzipFile(fileobj=out, mode="wb", mtime=0) as f:  # no time of day: the same graph gives the same bytes
        f.write(data)
    return out.getvalue()


def write_bytes(path, data):
    """Writes a file whole or not at all. Raises ConfigError when it cannot be written."""
    folder = os.path.dirname(os.path.abspath(path))
    unfinished = None
    try:
        handle, unfinished = tempfile.mkstemp(dir=folder)
        with os.fdopen(handle, "wb") as f:
            f.write(data)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(unfinished, 0o666 & ~umask)
        os.replace(unfinished, path)
    except OSError as reason:
        if unfinished is not None and os.path.exists(unfinished):
            os.unlink(unfinished)
        raise ConfigError("'%s' cannot be written: %s" % (path, reason.strerror or reason)) from reason


def _kind(path):
    plain = path[:-3] if path.endswith(".gz") else path
    kind = os.path.splitext(plain)[1]
    if kind not in SUFFIXES:
        raise ConfigError("'%s': a graph file ends in %s, or one of these and .gz" % (path, ", ".join(SUFFIXES)))
    return kind


def _parse(kind, data):
    if kind == ".meta":
        meta = tf.MetaGraphDef.FromString(data)
        return meta.graph_def, list(meta.collection_def["train_op"].node_list.value)
    if kind == ".pbtxt":
        return text_format.Parse(data.decode("utf-8"), tf.GraphDef()), []
    return tf.GraphDef.FromString(data), []
