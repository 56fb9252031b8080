"""The state of a program as another rank collects it from the one that owns it, see distributed/collecting.py."""

import contextlib
import functools

import tensorflow.compat.v1 as tf

from fuzz import playing
from npu_shim.distributed.job import cluster
from npu_shim.distributed.sharding import collecting


@functools.lru_cache(maxsize=None)
def server():
    """The server of this process."""
    return tf.train.Server.create_local_server()


@contextlib.contextmanager
def ranks(graph):
    """The only server of this process is that of every rank; afterwards it has no variables of the graph any more."""
    kept = cluster.address, cluster.task, cluster.share, tf.train.Saver.save
    job = server().server_def.job_name
    cluster.address, cluster.task = lambda: server().target, lambda rank: "/job:%s/replica:0/task:0" % job
    cluster.share = lambda graph: None
    try:
        yield
    finally:
        cluster.address, cluster.task, cluster.share, tf.train.Saver.save = kept
        tf.Session.reset(server().target, ["localhost", *_containers(graph)])  # the default one has this name


def _containers(graph):
    """The names of the containers of a graph's variables, without the default one."""
    named = (op.get_attr("container") for op in graph.get_operations() if "container" in op.node_def.attr)
    return sorted({tf.compat.as_str(name) for name in named} - {""})


class Collected(playing.Side):
    """A session of the rank that owns all variables; its state is looked at from another rank."""

    def __init__(self, built, folder):
        super().__init__(built, folder, target=server().target)
        with built.graph.as_default():
            collecting.note(playing.everything(), 0)
            self._other = tf.Session(graph=built.graph, config=tf.ConfigProto())
        self._other.run("init")

    def look(self):
        collecting.collect(self._other)
        mine, theirs = super().look(), playing.arrays(self._other.run(self._built.reads))
        return {name: (mine if "@" in name else theirs)[name] for name in mine}  # Twins are in no collection

    def close(self):
        self._other.close()
        super().close()


def of_one_session(program):
    """The program with the lines of its first session alone; sessions of one rank share their variables."""
    runs = [line for line in program.runs if line.startswith(("s.", "elsewhere"))]
    return program._replace(runs=tuple(line for line in runs if not line.startswith(("s.waits", "s.nested"))))


def play(program, expected, folder):
    """Runs a program in a session whose state another rank collects."""
    with ranks(expected.built.graph):
        return playing.play(program, expected.built, folder, Collected, expected.built)
