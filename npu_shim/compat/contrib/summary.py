"""tf.contrib.summary: summaries that ops write themselves (behaviour of TensorFlow 1.15.5, in graphs).

A summary is written when a writer is the default and recording is on; nothing is recorded before
`always_record_summaries` or `record_summaries_every_n_global_steps`.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

import tensorflow.compat.v1 as tf

# TensorFlow's own collections: TPUEstimator opens the files of the one, tf.cond and tf.while_loop move ops of the other
OPS, INITIALIZERS = "_SUMMARY_V2", "_SUMMARY_WRITER_V2"
_writers = []
_recording = [False]


class SummaryWriter:
    """A writer of event files.

    Attributes:
        resource: the resource tensor that the ops write through, or None for a writer that writes nothing.
    """

    def __init__(self, resource: Any, create: Any) -> None:
        self.resource = resource
        self._create = create

    @contextlib.contextmanager
    def as_default(self) -> Any:
        """A scope in which summaries go to this writer."""
        _writers.append(self)
        try:
            yield self
            if self.resource is not None and tf.executing_eagerly():
                self.flush()
        finally:
            _writers.pop()

    def set_as_default(self) -> Any:
        """Makes this the default writer from now on."""
        _writers[:] = [self]

    def init(self) -> Any:
        """Returns the op that opens the file."""
        return self._create if self.resource is not None else tf.no_op()

    def flush(self) -> Any:
        """Returns the op that writes what is pending."""
        return tf.no_op() if self.resource is None else tf.raw_ops.FlushSummaryWriter(writer=self.resource)

    def close(self) -> Any:
        """Returns the op that closes the file."""
        return tf.no_op() if self.resource is None else tf.raw_ops.CloseSummaryWriter(writer=self.resource)


def create_file_writer(
    logdir: str,
    max_queue: int | None = None,
    flush_millis: int | None = None,
    filename_suffix: str | None = None,
    name: str | None = None,
) -> SummaryWriter:
    """A writer for a folder.

    Args:
        logdir: str, or None for a writer that writes nothing.
        max_queue: int, events to buffer; 10 by default.
        flush_millis: int, milliseconds between two flushes; 120000 by default.
        filename_suffix: str, ".v2" by default.
        name: name under which graphs share the writer; derived from `logdir` by default.
    """
    if logdir is None:
        return SummaryWriter(None, None)
    with tf.device("cpu:0"):
        resource = tf.raw_ops.SummaryWriter(shared_name=name or "logdir:%s" % logdir, container="")
        create = tf.raw_ops.CreateSummaryFileWriter(
            writer=resource, logdir=logdir, max_queue=10 if max_queue is None else max_queue,
            flush_millis=2 * 60 * 1000 if flush_millis is None else flush_millis,
            filename_suffix=".v2" if filename_suffix is None else filename_suffix,
        )  # fmt: skip
    tf.add_to_collection(INITIALIZERS, create)
    return SummaryWriter(resource, create)


create_summary_file_writer = create_file_writer


def eval_dir(model_dir: str, name: str | None = None) -> str:
    """The folder of an evaluation's events."""
    return os.path.join(model_dir, "eval" if not name else "eval_" + name)


@contextlib.contextmanager
def _recorded(condition):
    before, _recording[0] = _recording[0], condition
    try:
        yield
    finally:
        _recording[0] = before


def always_record_summaries() -> Any:
    """A scope in which all summaries are recorded."""
    return _recorded(True)


def never_record_summaries() -> Any:
    """A scope in which no summary is recorded."""
    return _recorded(False)


def record_summaries_every_n_global_steps(n: int, global_step: Any = None) -> Any:
    """A scope in which summaries are recorded when the global step is a multiple of `n`."""
    step = tf.train.get_or_create_global_step() if global_step is None else global_step
    with tf.device("cpu:0"):
        return _recorded(tf.equal(step % n, 0))


def should_record_summaries() -> Any:
    """Whether summaries are recorded here: a bool, or a bool scalar."""
    return _recording[0] if _writers and _writers[-1].resource is not None else False


def all_summary_ops() -> list[Any]:
    """The ops of all summaries of the graph so far."""
    return [] if tf.executing_eagerly() else tf.get_collection(OPS)


def summary_writer_initializer_op() -> list[Any]:
    """The ops that open the files of the graph's writers."""
    return tf.get_collection(INITIALIZERS)


def initialize(graph: Any = None, session: Any = None) -> None:
    """Opens the files of the graph's writers in a session, and writes the graph if one is given.

    Raises:
        ValueError: there is no session.
    """
    session = session or tf.get_default_session()
    if session is None:
        raise ValueError("Argument `session must be passed if no default session exists")
    session.run(summary_writer_initializer_op())
    if graph is not None and _writers:
        session.run(_graph_op(graph, 0))


def scalar(name: str, tensor: Any, family: str | None = None, step: Any = None) -> Any:
    """Writes a number."""
    return _summary(name, family, step, lambda writer, tag, at: tf.raw_ops.WriteScalarSummary(
        writer=writer, step=at, tag=tag, value=tf.convert_to_tensor(tensor)))  # fmt: skip


def histogram(name: str, tensor: Any, family: str | None = None, step: Any = None) -> Any:
    """Writes the distribution of a tensor's values."""
    return _summary(name, family, step, lambda writer, tag, at: tf.raw_ops.WriteHistogramSummary(
        writer=writer, step=at, tag=tag, values=tf.convert_to_tensor(tensor)))  # fmt: skip


def image(
    name: str, tensor: Any, bad_color: Any = None, max_images: int = 3, family: str | None = None, step: Any = None
) -> Any:
    """Writes images [batch, height, width, channels]."""
    color = tf.constant([255, 0, 0, 255], tf.uint8) if bad_color is None else bad_color
    return _summary(name, family, step, lambda writer, tag, at: tf.raw_ops.WriteImageSummary(
        writer=writer, step=at, tag=tag, tensor=tensor, bad_color=color, max_images=max_images))  # fmt: skip


def audio(
    name: str, tensor: Any, sample_rate: Any, max_outputs: int, family: str | None = None, step: Any = None
) -> Any:
    """Writes sounds [batch, frames] or [batch, frames, channels]."""
    return _summary(name, family, step, lambda writer, tag, at: tf.raw_ops.WriteAudioSummary(
        writer=writer, step=at, tag=tag, tensor=tensor, sample_rate=sample_rate, max_outputs=max_outputs))  # fmt: skip


def generic(name: str, tensor: Any, metadata: Any = None, family: str | None = None, step: Any = None) -> Any:
    """Writes a tensor with serialized SummaryMetadata."""
    text = metadata.SerializeToString() if hasattr(metadata, "SerializeToString") else (metadata or b"")
    return _summary(name, family, step, lambda writer, tag, at: tf.raw_ops.WriteSummary(
        writer=writer, step=at, tag=tag, tensor=tf.convert_to_tensor(tensor), summary_metadata=text))  # fmt: skip


def import_event(tensor: Any, name: str | None = None) -> Any:
    """Writes a serialized Event."""
    return tf.raw_ops.ImportEvent(writer=_writers[-1].resource, event=tensor) if _writers else tf.no_op()


def graph(param: Any, step: Any = None, name: str | None = None) -> Any:
    """Writes a graph: a Graph, a GraphDef, or serialized GraphDef as a tensor."""
    return _graph_op(param, _step(step)) if _writers and _writers[-1].resource is not None else tf.no_op()


def flush(writer: Any = None, name: str | None = None) -> Any:
    """The op that writes what is pending, of the default writer unless one is given."""
    writer = writer or (_writers[-1] if _writers else None)
    return tf.no_op() if writer is None else writer.flush()


def _graph_op(param, step):
    param = param.as_graph_def() if isinstance(param, tf.Graph) else param
    text = param.SerializeToString() if isinstance(param, tf.GraphDef) else param
    return tf.raw_ops.WriteGraphSummary(writer=_writers[-1].resource, step=tf.cast(step, tf.int64), tensor=text)


def _step(step):
    return tf.cast(tf.train.get_or_create_global_step() if step is None else step, tf.int64)


def _summary(name, family, step, write):
    """The op that writes when recording is on; it is among `all_summary_ops`."""
    record = should_record_summaries()
    if record is False:
        return tf.no_op()
    writer = _writers[-1].resource
    tag = "%s/%s" % (family, name) if family else name
    scope = tf.get_default_graph().get_name_scope() if not tf.executing_eagerly() else ""
    tag = "/".join(filter(None, [scope, tag]))

    def written():
        with tf.control_dependencies([write(writer, tag, _step(step))]):
            return tf.constant(True)

    with tf.device("cpu:0"):
        op = written() if record is True else tf.cond(record, written, lambda: tf.constant(False))
    if not tf.executing_eagerly():
        tf.add_to_collection(OPS, op)
    return op
