"""Writes a SavedModel with rewritten graphs, which plain TensorFlow loads and serves: it needs nothing of npu_shim.

    SavedModel            each of its graphs is rewritten; signatures, tags, assets and variables are what they were
    checkpoint, .meta     what --fetches need, with a signature `serving_default`, under the tag `serve`

Variables are files, and are copied: they keep their dtypes.
"""

from __future__ import annotations

import os
import shutil
from typing import Any, Callable, Iterable, Iterator, Sequence

import tensorflow.compat.v1 as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from npu_shim.cli.graphs import graph_file
from npu_shim.pjrt import atomic_write
from npu_shim.rewriter import tf_internals
from npu_shim.rewriter.errors import ConfigError
from npu_shim.rewriter.graph.arguments import source_of

Rewrite = Callable[[Any, Sequence[str], Sequence[str]], Any]  # (GraphDef, feeds, names to preserve) -> GraphDef

VARIABLES = "variables"  # the folder of a SavedModel, and the prefix of the checkpoint in it
COLLECTIONS = ("variables", "trainable_variables", "local_variables")  # of a checkpoint's graph, what is kept
STALE = ("fingerprint.pb", *graph_file.SAVED_MODEL)  # files of a SavedModel that say what its graphs were


def is_named(path: str) -> bool:
    """Whether a path names a SavedModel to write, and not a graph file."""
    return not path.endswith((*graph_file.SUFFIXES, *(suffix + ".gz" for suffix in graph_file.SUFFIXES)))


def require_writable(path: str, source: str) -> None:
    """Raises ConfigError where a SavedModel cannot be written to a path, or of a source."""
    if os.path.lexists(path):
        raise ConfigError("--write '%s': it exists already; a SavedModel is written to a new folder" % path)
    if os.path.basename(source) not in graph_file.SAVED_MODEL and not source.endswith(".meta"):
        text = (
            "--write '%s': a SavedModel is written of a SavedModel or of a checkpoint with its .meta, and '%s' has no "
            "variables; name a graph file, .pb or .pbtxt"
        )
        raise ConfigError(text % (path, source))


def write(path: str, source: str, feeds: Sequence[str], fetches: Sequence[str], rewrite: Rewrite) -> None:
    """Writes a SavedModel; the folder appears whole or not at all.

    Args:
        path: where nothing is.
        source: the saved_model.pb or the .meta, as `graph_file.file_of` finds it.
        feeds: names of tensors that are fed, besides those of signatures.
        fetches: names of tensors and operations that are fetched or run, besides those of signatures.
        rewrite: rewrites a graph.

    Raises:
        ConfigError: the source is a SavedModel of TensorFlow 2, or a checkpoint in the format V1; a name is not in the
            graph; or the folder cannot be written.
    """
    if source.endswith(".meta"):
        meta, files = _of_checkpoint(source, feeds, fetches)
        saved = SavedModel(saved_model_schema_version=1, meta_graphs=[meta])
    else:
        saved, files = graph_file.saved_model(source), _files_of(os.path.dirname(source))
    for meta in saved.meta_graphs:
        _require_first_version(meta, source)
        names = {node.name for node in meta.graph_def.node}
        fed = [*feeds, *_tensors(meta, "inputs")]
        kept = [name for name in (*fetches, *_known_outside(meta)) if source_of(name) in names]
        meta.graph_def.CopyFrom(rewrite(meta.graph_def, [name for name in fed if source_of(name) in names], kept))
        _list_ops(meta)
    with atomic_write.folder(path) as folder:
        for name, origin in files:
            os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
            shutil.copyfile(origin, os.path.join(folder, name))
        with open(os.path.join(folder, graph_file.SAVED_MODEL[0]), "wb") as f:
            f.write(saved.SerializeToString(deterministic=True))


def _files_of(folder: str) -> list[tuple[str, str]]:
    """(path within, path) of what a SavedModel has beside its graphs: variables, assets and what else lies there."""
    paths = [os.path.join(where, name) for where, _, names in os.walk(folder) for name in names]
    files = sorted((os.path.relpath(path, folder), path) for path in paths)
    return [(name, path) for name, path in files if name not in STALE]


def _of_checkpoint(source: str, feeds: Sequence[str], fetches: Sequence[str]) -> tuple[Any, list[tuple[str, str]]]:
    """The MetaGraphDef that serves what a checkpoint's graph gives, and the files of its variables."""
    prefix = source[: -len(".meta")]
    folder, stem = os.path.split(prefix)
    if not os.path.exists(prefix + ".index"):
        raise ConfigError("'%s' is no checkpoint that a SavedModel can have: '%s.index' is missing" % (prefix, prefix))
    shards = [name for name in os.listdir(folder or ".") if name.startswith((stem + ".index", stem + ".data-"))]
    files = [
        (os.path.join(VARIABLES, VARIABLES + name[len(stem) :]), os.path.join(folder, name)) for name in sorted(shards)
    ]
    meta = tf.MetaGraphDef.FromString(graph_file.content(source))
    names = {node.name for node in meta.graph_def.node}
    missing = [name for name in (*feeds, *fetches) if source_of(name) not in names]
    if missing:
        raise ConfigError("'%s' is not in the graph of '%s'" % (missing[0], source))
    for key in [key for key in meta.collection_def if key not in COLLECTIONS]:
        del meta.collection_def[key]
    ends = {source_of(name) for name in (*fetches, *_known_outside(meta))}
    meta.graph_def.CopyFrom(tf.graph_util.extract_sub_graph(meta.graph_def, sorted(ends & names)))
    meta.meta_info_def.ClearField("tags")
    meta.meta_info_def.tags.append(tf.saved_model.SERVING)
    _sign(meta, feeds, fetches)
    return meta, files


def _sign(meta: Any, feeds: Sequence[str], fetches: Sequence[str]) -> None:
    """Adds the signature of a checkpoint's graph: what is fed, else its placeholders, and what is fetched."""
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(meta.graph_def, name="")
        needed = tf.graph_util.extract_sub_graph(meta.graph_def, [source_of(name) for name in fetches]).node
        given = feeds or [node.name for node in needed if node.op == "Placeholder"]
        inputs, outputs = (
            {source_of(name): graph.as_graph_element(name if ":" in name else name + ":0") for name in tensors}
            for tensors in (given, [name for name in fetches if graph.get_operation_by_name(source_of(name)).outputs])
        )
        signature = tf.saved_model.predict_signature_def(inputs, outputs)
    meta.signature_def[tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY].CopyFrom(signature)


def _require_first_version(meta: Any, source: str) -> None:
    if len(meta.object_graph_def.nodes):
        text = "'%s' is a SavedModel of TensorFlow 2, whose functions are loaded beside its graph; export it by %s"
        raise ConfigError(text % (source, "tf.compat.v1.saved_model.simple_save, or give a checkpoint with its .meta"))


def _tensors(meta: Any, side: str) -> Iterator[str]:
    """The names of the tensors that the signatures of a graph take, or give."""
    for signature in meta.signature_def.values():
        for info in getattr(signature, side).values():
            yield from _of_info(info)


def _of_info(info: Any) -> Iterable[str]:
    kind = info.WhichOneof("encoding")
    if kind == "composite_tensor":
        return [name for component in info.composite_tensor.components for name in _of_info(component)]
    if kind == "coo_sparse":
        sparse = info.coo_sparse
        return [sparse.values_tensor_name, sparse.indices_tensor_name, sparse.dense_shape_tensor_name]
    return [info.name] if info.name else []


def _known_outside(meta: Any) -> Iterator[str]:
    """The names in a graph that others know: of signatures, of the saver, of collections, of variables and assets."""
    yield from _tensors(meta, "outputs")
    saver = meta.saver_def
    yield from (name for name in (saver.filename_tensor_name, saver.save_tensor_name, saver.restore_op_name) if name)
    for key, collection in meta.collection_def.items():
        yield from collection.node_list.value
        if key in COLLECTIONS or "variables" in key:
            for data in collection.bytes_list.value:
                known = _variable(data)
                yield from (known.initializer_name, known.snapshot_name, source_of(known.variable_name))
    for asset in meta.asset_file_def:
        yield asset.tensor_info.name


def _variable(data: bytes) -> Any:
    from tensorflow.core.framework.variable_pb2 import VariableDef

    return VariableDef.FromString(data)


def _list_ops(meta: Any) -> None:
    """Adds the definitions of the ops that a rewrite brings to those that a MetaGraphDef lists."""
    listed = {definition.name for definition in meta.meta_info_def.stripped_op_list.op}
    used = {node.op for node in meta.graph_def.node} if listed else set()
    for name in sorted(used - listed):
        definition = tf_internals.op_defs().get(name)
        if definition is not None:
            meta.meta_info_def.stripped_op_list.op.append(definition)
