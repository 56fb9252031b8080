"""Faults that were found elsewhere, put back one at a time: the programs must find each.

    with planted.FAULTS["shared initial tensors, engine"].plant(): ...

No program shows what changes neither a result nor the state of a session. Tests of such faults that were found:

    XLA clusters of other sessions taken apart     tests/tf/test_foreign_sessions.py
    collective keys that collide                   tests/tf/test_collective_keys.py
    libraries of other owners                      tests/tf/test_native_build.py
    a warning for each slow run                    tests/tf/test_collective_keys.py
    programs that nothing evicts                   tests/tf/test_compiled_devices.py
    what a worker has of this environment          tests/pure/test_child_interpreters.py
    private names of a later JAX                   tests/pure/test_private_jax_names.py
"""

import contextlib
import threading
from typing import Any, NamedTuple
from unittest import mock

import tensorflow.compat.v1 as tf

from npu_shim.checkpoint import assignments
from npu_shim.loss_scale.managers.graph_ops import state_here
from npu_shim.loss_scale.optimizers import accumulate, optimizer, sums, update_ops
from npu_shim.loss_scale.optimizers.inner import run_if
from npu_shim.rewriter.ir import graphdef
from npu_shim.rewriter.passes import pipeline
from npu_shim.session.passes import rounding
from npu_shim.xla.passes import writers


class Fault(NamedTuple):
    """A fault.

    Attributes:
        entrance: where it is to be found.
        plant: function that returns a scope in which it is back.
    """

    entrance: str
    plant: Any


def _put(*triples):
    """A function that returns a scope with other attributes: triples of an object, a name and a value."""

    @contextlib.contextmanager
    def planted():
        with contextlib.ExitStack() as stack:
            for of, name, value in triples:
                stack.enter_context(mock.patch.object(of, name, value))
            yield

    return planted


def _all_at_once(run, values):
    """Assigns in one run, so that variables with one initial tensor get one value."""
    pairs = list(values)
    run([assignment.operation for assignment, _ in pairs], {assignment.value: value for assignment, value in pairs})


def _nothing_excludes():
    from npu_shim.engine.runtime import access

    return _put((access.Access, "excludes", lambda self, touched, written: False))()


def _options_are_dropped():
    from npu_shim.engine import sessions

    plain_run = sessions.interceptors.plain_run
    return _put(
        (sessions, "_is_for_session", lambda options: False),
        (
            sessions.interceptors,
            "plain_run",
            lambda session, fetches, feeds=None, options=None: plain_run(session, fetches, feeds),
        ),
    )()


class _WaitingLock:
    """A lock that is always waited for."""

    def __init__(self):
        self._lock = threading.Lock()
        self.release = self._lock.release

    def acquire(self, blocking=True):
        return self._lock.acquire()


def _lock_is_held():
    from npu_shim.engine import sessions

    return _put((sessions, "threading", mock.Mock(Lock=_WaitingLock)))()


class _Everything:
    """Has everything in it."""

    def __contains__(self, item):
        return True


def _always_dense(gradient, variable, sum_for=sums.sum_for):
    return sum_for(tf.convert_to_tensor(gradient), variable)


def _swap(graph_def):
    """The operands of the first difference or product change places."""
    for node in graph_def.node:
        if node.op in ("Sub", "MatMul") and node.input[0] != node.input[1]:
            first, second = node.input[:2]
            node.input[0], node.input[1] = second, first
            break
    return graph_def


def _swapped():
    """The rewriter exchanges operands, and nobody looks at edges."""
    from npu_shim.rewriter import rewrite

    real = rewrite.apply

    def apply(planned, graph_def):
        result, touched = real(planned, graph_def)
        return _swap(result), touched

    return _put((rewrite, "apply", apply), (pipeline, "_require_kept", lambda *_: None))()


def _swapped_later():
    """A rewrite behind the rewriter exchanges operands, and nobody looks at what it promised."""
    real = rounding.fuse_casts

    def fuse_casts(module, keep, accelerator):
        real(module, keep, accelerator)
        graphdef.replace(module, _swap(tf.GraphDef.FromString(graphdef.write(module).SerializeToString())))

    return _put((rounding, "fuse_casts", fuse_casts), (pipeline, "_require_kept", lambda *_: None))()


def _without_check(pairs):
    return [(gradient, variable) for gradient, variable in pairs if gradient is not None]


def _when_seen(self, build):
    return run_if(state_here(self._opt)["finite"], build)


FAULTS = {
    "shared initial tensors, engine": Fault("engine", _put((assignments, "assign", _all_at_once))),
    "shared initial tensors, collected": Fault("collected", _put((assignments, "assign", _all_at_once))),
    "lost updates": Fault("engine", _nothing_excludes),
    "RunOptions are dropped": Fault("engine", _options_are_dropped),
    "a lock is held while Python runs": Fault("engine", _lock_is_held),
    "containers are left out": Fault("compiled", _put((writers, "OWN_CONTAINER", _Everything()))),
    "dense sums of sparse gradients": Fault("scaled", _put((accumulate, "sum_for", _always_dense))),
    "every update is undone": Fault("scaled", _put((update_ops, "_nearest", lambda name, others: set(others)))),
    "gathered updates stay": Fault(
        "scaled", _put((optimizer.LossScaleOptimizer, "undo_updates", lambda self, given: []))
    ),
    "sums in float16": Fault("scaled", _put((sums, "NARROW", ()))),
    "when_finite in every step": Fault("scaled", _put((accumulate.AccumulatingOptimizer, "when_finite", _when_seen))),
    "no gradients": Fault("scaled", _put((accumulate, "pairs_with_gradients", _without_check))),
    "swapped operands": Fault("session", _swapped),
    "swapped operands, behind verify": Fault("session", _swapped_later),
}
