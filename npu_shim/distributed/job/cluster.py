"""The processes of one job as a TensorFlow cluster, so that TensorFlow's own collectives run between them.

With RANK_SIZE above 1 each process starts a server at its address (see `ranks.addresses`). Its sessions run on that
server and see only its own devices. The first use waits for the other processes. At exit the processes wait for each
other, so that none removes data that another still reads.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import logging
import os
import sys
import threading
import weakref
from typing import Any, Callable, Iterator, Mapping, NamedTuple, Sequence

import tensorflow.compat.v1 as tf

from npu_shim.distributed.collectives import keys, signature
from npu_shim.distributed.job import ranks, settings
from npu_shim.distributed.liveness import threads, watch
from npu_shim.rewriter.tf_internals import client_session, collective_ops, default_config

LOG = logging.getLogger("npu_shim")
JOB = "worker"
LAST_INSTANCE = 2**31 - 2  # instance key of the final barrier, far from those of `keys`
END_SECONDS = 10
BARRIER_SECONDS = 1  # after the final barrier
THREADS = 2  # at least; more than cores make small steps a third slower

_shared = weakref.WeakSet()  # graphs whose variables other ranks may read
_lock = threading.Lock()
_servers = []
_endings: list[Callable[[], Any]] = []  # what is called before the final barrier


def joined(
    target: str, config: tf.ConfigProto | None, graph: tf.Graph | None = None
) -> tuple[str, tf.ConfigProto | None]:
    """Returns (target, config) with which a session runs in the cluster; unchanged for one process or another target.

    Args:
        target: str, the session's target.
        config: tf.ConfigProto or None; it is not changed.
        graph: the session's graph, None for the default one.
    """
    if target or ranks.world_size() == 1:
        return target, config
    config = default_config() if config is None else config
    copy = tf.ConfigProto()
    copy.CopyFrom(config)
    copy.experimental.collective_group_leader = task(0)
    copy.experimental.collective_nccl = _has_nccl()  # orders collectives, as NCCL needs it
    # as without a cluster: variables of two sessions have nothing to do with each other, whatever their names
    copy.isolate_session_state = (graph or tf.get_default_graph()) not in _shared
    del copy.device_filters[:]
    copy.device_filters.append("/job:%s/task:%d" % (JOB, ranks.world_rank()))
    return _server(config).target, copy


def start(config: tf.ConfigProto | None) -> None:
    """Starts this process's server, unless it runs, with the devices and threads that a ConfigProto asks for."""
    _server(config)


def share(graph: tf.Graph) -> None:
    """Lets other ranks read the variables of sessions that are made for a graph from now on."""
    _shared.add(graph)


def address() -> str:
    """Returns the target of sessions that see the devices of all ranks."""
    return _server().target


def before_end(function: Callable[[], Any]) -> None:
    """Calls a function when this process is about to end, before the ranks wait for each other."""
    _endings.append(function)


def is_own(session: tf.Session) -> bool:
    """Whether a session runs on this process's server, and no other rank can read its variables."""
    own = bool(_servers) and tf.compat.as_str_any(session.sess_str) == _servers[0].target
    return own and session._config.isolate_session_state


def is_of_rank(target: Any) -> bool:
    """Whether a session's target is the address of one of several ranks: such a session is ours, not the script's."""
    if ranks.world_size() == 1:
        return False
    return tf.compat.as_str_any(target) in ["grpc://" + address for address in ranks.addresses()]


def task(rank: int) -> str:
    """Returns the device specification of a rank's process."""
    return "/job:%s/replica:0/task:%d" % (JOB, rank)


def _server(config=None):
    with _lock:  # sessions of several threads share one address
        return _started(config)


def _of_process(given):
    """Returns a ConfigProto with what a session's says about devices and threads: a process's first session decides."""
    config, given = tf.ConfigProto(), given or tf.ConfigProto()
    config.intra_op_parallelism_threads = given.intra_op_parallelism_threads
    # the pool also runs what answers other ranks, while an op of the script's may wait in it for its input
    config.inter_op_parallelism_threads = max(THREADS, given.inter_op_parallelism_threads or os.cpu_count() or 1)
    config.device_count.update(given.device_count)
    config.gpu_options.CopyFrom(given.gpu_options)
    gpus = _gpus()
    if len(gpus) == 1:  # Horovod's scripts name their local rank's; the launcher shows a worker its own alone
        config.gpu_options.visible_device_list = ""
    if len(gpus) > 1 and not given.gpu_options.visible_device_list:
        config.gpu_options.visible_device_list = str(ranks.get_local_rank_id() % len(gpus))
    config.experimental.collective_group_leader = task(0)
    config.experimental.collective_nccl = _has_nccl()
    return config


def _gpus():
    return tf.config.experimental.list_physical_devices("GPU")


def _has_nccl():
    return settings.gpus_use_nccl() and bool(_gpus())


def _started(given):
    if not _servers:
        rank, addresses = ranks.world_rank(), ranks.addresses()
        LOG.info("npu_shim: rank %d of %d listens at %s", rank, len(addresses), addresses[rank])
        config = _of_process(given)
        _servers.append(tf.train.Server({JOB: addresses}, job_name=JOB, task_index=rank, config=config))
        watch.begin()
        atexit.register(_servers.clear)  # while the modules are there that TensorFlow 1.15 needs for it
        atexit.register(_end, os.getpid())
    return _servers[0]


def watched(
    seconds: float | None,
    session: tf.Session,
    once: Callable[..., Any],
    fetches: Any,
    feed_dict: Any,
    options: Any = None,
    run_metadata: Any = None,
) -> Any:
    """Returns `once(fetches, feed_dict, options, run_metadata)`, a run of a session in the cluster.

    Args:
        seconds: how long a rank may take to reach a collective; None where the environment says it.
        session: tf.Session.
        once: function.
        fetches: as for Session.run.
        feed_dict: as for Session.run.
        options: tf.RunOptions or None.
        run_metadata: as for Session.run.

    Raises:
        tf.errors.InvalidArgumentError: collectives of groups that only overlap; others as `watch.run`.
    """
    what = signature.of_run(session.graph, fetches, feed_dict)
    if not what:
        return watch.run_alone(functools.partial(once, fetches, feed_dict, options, run_metadata))
    what.plan = what.plan or _plan(what)
    copy = tf.RunOptions()
    if options is not None:
        copy.CopyFrom(options)
    copy.experimental.collective_graph_key = what.plan.step_key
    plain = functools.partial(once, fetches, feed_dict, copy, run_metadata)
    return watch.run(what, what.plan.members, seconds, session, plain)


class Meeting(NamedTuple):
    """A run in which ranks meet.

    Attributes:
        what: its collectives by the key of their group, as `signature.of_run` gives them.
        ranks: the world ranks of the widest of these groups, in TensorFlow's order.
        groups: key of a group -> the numbers of its ranks among `ranks`, in TensorFlow's order.
    """

    what: Any
    ranks: Sequence[int]
    groups: Mapping[int, Sequence[int]]

    def run(self, seconds: float | None, session: tf.Session, once: Callable[[], Any]) -> Any:
        """Returns `once()`, if all these ranks come to this run; arguments and errors as of `watch.run`."""
        return watch.run(self.what, self.what.plan.members, seconds, session, once)


def meeting(session: tf.Session, fetches: Any, feed_dict: Any) -> Meeting | None:
    """Returns the Meeting of a run of a session in the cluster, None where ranks do not meet in it.

    Errors as of `watched`, and those of TensorFlow for fetches that are none.
    """
    what = signature.of_run(session.graph, fetches, feed_dict)
    if not what:
        return None
    what.plan = what.plan or _plan(what)
    members = {group: sorted(ranks, key=task) for group, ranks in what.plan.members.items()}
    widest = max(members.values(), key=len)
    return Meeting(what, widest, {group: [widest.index(rank) for rank in ranks] for group, ranks in members.items()})


def refuse_partial(session: tf.Session, fetches: Any, feeds: Any) -> None:
    """Refuses a partial run with collectives, for which TensorFlow would wait for ever.

    Args:
        session: tf.Session in the cluster.
        fetches: as for Session.partial_run_setup.
        feeds: list of tensors or names, or None.

    Raises:
        tf.errors.UnimplementedError: the run needs a collective.
    """
    what = signature.of_run(session.graph, fetches, dict.fromkeys(feeds or ()))
    for collectives in what.values():
        text = "npu_shim: %s: a partial run cannot meet other ranks, and it needs the collective %s; use Session.run"
        raise tf.errors.UnimplementedError(None, None, text % (watch.name_of(ranks.world_rank()), collectives[0]))


class _Plan(NamedTuple):
    """The world ranks of the groups of a run, and the number by which ranks know that they make the same run."""

    members: Mapping[int, Sequence[int]]
    step_key: int


def _plan(what):
    """Works out the _Plan of a run.

    TensorFlow counts a run among those of its process that have the same collectives, and collectives meet only in runs
    of one number. So a run of a group and of a part of it would be counted apart from the run of the ranks outside of
    that part; here the collectives of the largest group decide.
    """
    members = {group: _members(group) for group in what}
    widest = max(members, key=lambda group: len(members[group]))
    apart = [group for group in members if not set(members[group]) <= set(members[widest])]
    if apart:
        named = [(what[group][0], sorted(members[group])) for group in (widest, apart[0])]
        text = "npu_shim: %s: a run has the collectives %s of ranks %s and %s of ranks %s; run them one after the other"
        words = (watch.name_of(ranks.world_rank()), *named[0], *named[1])
        raise tf.errors.InvalidArgumentError(None, None, text % words)
    shown = ",".join(sorted(str(collective.instance) for collective in what[widest]))
    return _Plan(members, 2**32 + keys.wide(shown))


def _members(key):
    """The world ranks of the group with a key; those of a group that has been destroyed are not known."""
    known = (ranks.members(group) for group in ranks.groups() if group_key(group) == key)
    return next(known, (ranks.world_rank(),))


def _end(process):
    if process != os.getpid():  # a fork of it
        return
    error = getattr(sys, "last_value", None)  # what Python has shown as it let the program end
    if not watch.deregister("" if error is None else "%s: %s" % (type(error).__name__, error)):
        return
    for function in _endings:
        function()
    target, config = joined("", None)
    with tf.Graph().as_default() as graph:
        keys = ranks.world_size(), group_key(ranks.WORLD), LAST_INSTANCE
        with placed(tf.constant(1.0)) as here:
            barrier = collective_ops().all_reduce(here, *keys, "Add", "Id")
    session = client_session().BaseSession(target, graph, config)  # with a target it is not watched
    call = threads.last(lambda: session.run(barrier))
    ended = call.ends(END_SECONDS)
    while not ended and watch.is_waited_for():
        ended = call.ends(END_SECONDS)
    if ended and call.error is None:
        watch.shutdown_barrier(BARRIER_SECONDS)
    elif watch.deregister(""):
        reason = type(call.error).__name__ if ended else "none came in %d s" % END_SECONDS
        LOG.warning("npu_shim: the other ranks exited without reaching the final barrier (%s)", reason)


@contextlib.contextmanager
def placed(tensor: tf.Tensor) -> Iterator[tf.Tensor]:
    """Scope on this process's devices, which TensorFlow 1.15 asks for; yields the tensor, placed there too."""
    with tf.device(task(ranks.world_rank())):
        yield tf.identity(tensor)


def group_key(group: str) -> int:
    """Returns TensorFlow's number of a group."""
    return 1 if group == ranks.WORLD else keys.group(group)
