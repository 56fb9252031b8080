"""The processes of one job as a TensorFlow cluster, so that TensorFlow's own collectives run between them.

With RANK_SIZE above 1 each process starts a server at its address (see `ranks.addresses`). Its sessions run on that
server and see only its own devices. The first use waits for the other processes. At exit the processes wait for each
other, so that none removes data that another still reads.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import threading
import time
import weakref
import zlib

import tensorflow.compat.v1 as tf

from npu_shim.distributed import ranks
from npu_shim.rewriter.tf_internals import collective_ops

LOG = logging.getLogger("npu_shim")
JOB = "worker"
MERGE = {"sum": "Add", "prod": "Mul"}  # merge ops that the collectives of every TensorFlow have
GATHER = {"max": tf.reduce_max, "min": tf.reduce_min}
SUMMED = (tf.float16, tf.float32, tf.float64, tf.int32, tf.int64)  # dtypes of the collectives
LAST_INSTANCE = 2**31 - 2  # instance key of the final barrier, far from the keys that graphs count up
END_SECONDS = 10

_lock = threading.Lock()
_servers = []
_counts = weakref.WeakKeyDictionary()  # graph -> collectives in it


def joined(target: str, config: tf.ConfigProto | None) -> tuple[str, tf.ConfigProto | None]:
    """Returns (target, config) with which a session runs in the cluster; unchanged for one process or another target.

    Args:
        target: str, the session's target.
        config: tf.ConfigProto or None; it is not changed.
    """
    if target or ranks.world_size() == 1:
        return target, config
    made = tf.ConfigProto()
    if config is not None:
        made.CopyFrom(config)
    made.experimental.collective_group_leader = "/job:%s/replica:0/task:0" % JOB
    del made.device_filters[:]
    made.device_filters.append("/job:%s/task:%d" % (JOB, ranks.world_rank()))
    return _server().target, made


def _server():
    with _lock:  # sessions of several threads share one address
        return _started()


def _started():
    if not _servers:
        rank, addresses = ranks.world_rank(), ranks.addresses()
        LOG.info("npu_shim: rank %d of %d listens at %s", rank, len(addresses), addresses[rank])
        config = tf.ConfigProto()
        gpus = tf.config.experimental.list_physical_devices("GPU")
        if len(gpus) > 1:
            config.gpu_options.visible_device_list = str(ranks.get_local_rank_id() % len(gpus))
        config.experimental.collective_group_leader = "/job:%s/replica:0/task:0" % JOB
        _servers.append(tf.train.Server({JOB: addresses}, job_name=JOB, task_index=rank, config=config))
        atexit.register(_end)
    return _servers[0]


def _end():
    target, config = joined("", None)
    options = tf.RunOptions(timeout_in_ms=END_SECONDS * 1000)
    with tf.Graph().as_default():
        keys = ranks.world_size(), _group_key(ranks.WORLD), LAST_INSTANCE
        with _placed(tf.constant(1.0)) as here:
            barrier = collective_ops().all_reduce(here, *keys, "Add", "Id")
        try:
            tf.Session(target, config=config).run(barrier, options=options)
            time.sleep(1)  # the others may still be reading the barrier's own data
        except tf.errors.OpError as reason:
            text = "npu_shim: the other ranks exited without reaching the final barrier (%s)"
            LOG.warning(text, type(reason).__name__)


@contextlib.contextmanager
def _placed(tensor):
    """Scope on this process's devices, which TensorFlow 1.15 asks for; yields the tensor, placed there too."""
    with tf.device("/job:%s/replica:0/task:%d" % (JOB, ranks.world_rank())):
        yield tf.identity(tensor)


def _keys(group):
    """Returns (size, group key, instance key): ranks that build the same graph count the same instances."""
    graph = tf.get_default_graph()
    _counts[graph] = _counts.get(graph, 0) + 1
    return ranks.get_rank_size(group), _group_key(group), _counts[graph]


def _group_key(group):
    return 1 if group == ranks.WORLD else 2 + zlib.crc32(group.encode()) % 2**30


def allreduce(tensor: tf.Tensor, reduction: str, group: str) -> tf.Tensor:
    """Returns the reduced tensor; its gradient is the sum of the ranks' gradients."""

    @tf.custom_gradient
    def reduced(x):
        def gradient(dy):
            return allreduce(dy, "sum", group)

        if reduction in GATHER:
            return GATHER[reduction](allgather(x[tf.newaxis], group), axis=0), gradient
        with _placed(x) as here:
            return collective_ops().all_reduce(here, *_keys(group), MERGE[reduction], "Id"), gradient

    return reduced(tf.convert_to_tensor(tensor))


def allgather(tensor: tf.Tensor, group: str) -> tf.Tensor:
    """Returns every rank's tensor, one after the other along the first axis."""
    with _placed(tensor) as here:
        return collective_ops().all_gather(here, *_keys(group))


def broadcast(tensor: tf.Tensor, root_rank: int, group: str) -> tf.Tensor:
    """Returns the root rank's tensor: the sum of it and everyone else's zeros, which needs no shape beforehand.

    TensorFlow 1.15's own broadcast loses its sender in groups other than the first.
    """
    tensor = tf.convert_to_tensor(tensor)
    given = tensor if ranks.get_rank_id(group) == root_rank else tf.zeros_like(tensor)
    wide = given if given.dtype in SUMMED else tf.cast(given, tf.int32)
    return tf.cast(allreduce(wide, "sum", group), tensor.dtype)
