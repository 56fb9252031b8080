"""Whole checkpoints of sharded training: before a Saver writes, the state that other ranks own is fetched from them.

A rank's variables live in its TensorFlow server, which hands them to every session of the cluster. Between two steps of
this process no other rank can finish a step, which needs this one's gradients, so what is read belongs to one step.
"""

from __future__ import annotations

import functools
import weakref
from typing import Any, Sequence

import tensorflow.compat.v1 as tf

from npu_shim.checkpoint import assignments
from npu_shim.distributed.job import cluster
from npu_shim.rewriter.errors import ConfigError

_state = weakref.WeakKeyDictionary()  # graph -> [(variable, its owner's rank)]


def note(variables: Sequence[Any], owner: int) -> None:
    """Notes that a rank alone updates these variables; from now on Savers collect them before they write."""
    graph = variables[0].graph if variables else tf.get_default_graph()
    cluster.share(graph)
    _state.setdefault(graph, []).extend((variable, owner) for variable in variables)
    if not hasattr(tf.train.Saver.save, "__wrapped__"):
        tf.train.Saver.save = _collecting(tf.train.Saver.save)


def collect(session: tf.Session) -> None:
    """Assigns the values that the owners have to this process's variables of their state.

    Args:
        session: session of this process that holds the variables.

    Raises:
        ConfigError: a session that was made before the optimizer, whose variables other ranks cannot read.
    """
    noted = _state.get(session.graph, [])
    if not noted:
        return
    if session._config.isolate_session_state:
        raise ConfigError("is_weight_update_sharding: make the session after the optimizer, whose state it saves")
    with tf.Graph().as_default():
        remote = [_remote(*variable) for variable in noted]
        with tf.Session(cluster.address()) as everywhere:
            try:
                values = everywhere.run(remote)
            except tf.errors.FailedPreconditionError:
                return  # an owner has no values yet: no step was made, and what stands here is what it will begin with
    own = [assignments.assignment_of(assignments.variable_op(variable)) for variable, _ in noted]
    assignments.assign(session.run, zip(own, values))


def _collecting(save):
    @functools.wraps(save)
    def collected(self, sess, *args, **kwargs):
        collect(sess)
        return save(self, sess, *args, **kwargs)

    return collected


def _remote(variable, owner):
    """Returns another rank's value of a variable, as a tensor of the default graph."""
    op = variable.op
    of = {"dtype": variable.dtype.base_dtype, "shape": variable.shape, "container": op.get_attr("container"),
          "shared_name": op.get_attr("shared_name") or op.name}  # fmt: skip
    with tf.device(cluster.task(owner)):
        if op.type == "VarHandleOp":
            return tf.raw_ops.ReadVariableOp(resource=tf.raw_ops.VarHandleOp(**of), dtype=of["dtype"])
        return tf.identity(tf.raw_ops.VariableV2(**of))
