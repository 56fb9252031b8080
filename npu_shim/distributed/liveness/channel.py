"""What ranks tell each other besides tensors: a question that another rank's Python answers, whatever it runs.

TensorFlow's own servers carry it: a graph with one PyFunc runs on the other's server, where its token is the name of a
function that every rank has registered. No port but the servers' own is opened for it. It works on 1.15.5, 2.15.1 and
2.21 while a session runs there, and takes 6 to 25 ms on one machine.
"""

from __future__ import annotations

import json
import socket
import threading
from typing import Any, Callable, Iterable

import numpy as np
import tensorflow.compat.v1 as tf

from npu_shim.distributed.job import ranks
from npu_shim.distributed.job.description import host_of
from npu_shim.rewriter import tf_internals

JOB = "worker"
TOKEN = "npu_shim_progress"
AT_ONCE = 32  # questions at the same time
CONNECT = 2.0  # seconds


def answer_by(function: Callable[[Any], Any]) -> None:
    """Has a function of one JSON value answer what other ranks ask, from now on."""

    def answer(message):
        return np.array(json.dumps(function(json.loads(message))).encode(), object)

    tf_internals.register_py_func(TOKEN, answer)


def ask(rank: int, message: Any, seconds: float) -> Any:
    """Returns what a rank answers to a message, both JSON values; None if it gives no answer in time."""
    milliseconds = int(seconds * 1000)
    with tf.Graph().as_default() as graph, tf.device("/job:%s/replica:0/task:%d/device:CPU:0" % (JOB, rank)):
        said = tf.constant(json.dumps(message))
        (answer,) = tf.raw_ops.PyFunc(input=[said], token=TOKEN, Tout=[tf.string])
    config = tf.ConfigProto(operation_timeout_in_ms=milliseconds)
    config.device_filters.append("/job:%s/task:%d" % (JOB, rank))
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    options = tf.RunOptions(timeout_in_ms=milliseconds)
    try:  # not Session, which is patched: what is asked is no graph of the script's
        session = tf_internals.client_session().BaseSession("grpc://" + ranks.addresses()[rank], graph, config)
        try:
            return json.loads(session.run(answer, options=options))
        finally:
            session.close()
    except tf.errors.OpError:
        return None


def listens(rank: int) -> bool:
    """Whether something listens at a rank's address; also a stopped process does."""
    address = ranks.addresses()[rank]
    host, port = host_of(address), int(address.rpartition(":")[2])
    try:
        with socket.create_connection((host.strip("[]"), port), timeout=CONNECT):
            return True
    except ConnectionRefusedError:
        return False
    except OSError:  # the way to it is slow or broken: not known
        return True


def for_each(of: Iterable[int], function: Callable[[int], Any]) -> dict[int, Any]:
    """Returns a function's result for each of some ranks, called in several threads."""
    answers: dict[int, Any] = {}
    threads: list[threading.Thread] = []
    lock = threading.Lock()

    def work():
        while True:
            with lock:
                rank = next(waiting, None)
            if rank is None:
                return
            answers[rank] = function(rank)

    of = list(of)
    waiting = iter(of)
    for _ in range(min(AT_ONCE, len(of)) - 1):
        try:
            threads.append(threading.Thread(target=work, daemon=True))
            threads[-1].start()
        except RuntimeError:  # the interpreter is about to end and starts none
            threads.pop()
    work()
    for thread in threads:
        thread.join()
    return answers
