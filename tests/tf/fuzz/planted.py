"""Faults that were found elsewhere, put back one at a time: the programs must find each.

with planted.FAULTS["shared initial tensors"].plant(): ...
"""

import contextlib
from typing import Any, NamedTuple
from unittest import mock

import tensorflow.compat.v1 as tf

from npu_shim.checkpoint import assignments
from npu_shim.loss_scale import accumulate, optimizer, sums, update_ops
from npu_shim.loss_scale.graph_ops import state_here
from npu_shim.loss_scale.inner import run_if
from npu_shim.xla import writers


class Fault(NamedTuple):
    """A fault.

    Attributes:
        door: where it is to be found.
        plant: function that returns a scope in which it is back.
    """

    door: str
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
    run([each.operation for each, _ in pairs], {each.value: value for each, value in pairs})


def _engine():
    from npu_shim.engine import access

    return _put((access.Access, "excludes", lambda self, touched, written: False))()


class _Everything:
    """Has everything in it."""

    def __contains__(self, item):
        return True


def _always_dense(gradient, variable, made=sums.sum_for):
    return made(tf.convert_to_tensor(gradient), variable)


def _swapped():
    """The operands of the first differences of a rewritten graph change places, and nobody looks at edges."""
    from npu_shim.rewriter import rewrite

    real = rewrite.apply

    def apply(planned, graph_def):
        made, touched = real(planned, graph_def)
        for node in made.node:
            if node.op in ("Sub", "MatMul") and node.input[0] != node.input[1]:
                first, second = node.input[:2]
                node.input[0], node.input[1] = second, first
                break
        return made, touched

    nobody = lambda *_: None  # noqa: E731
    return _put((rewrite, "apply", apply), (rewrite, "_verify", nobody), (rewrite, "require_same_flat", nobody))()


def _without_check(pairs):
    return [(gradient, variable) for gradient, variable in pairs if gradient is not None]


def _when_seen(self, build):
    return run_if(state_here(self._opt)["finite"], build)


FAULTS = {
    "shared initial tensors, engine": Fault("engine", _put((assignments, "assign", _all_at_once))),
    "shared initial tensors, collected": Fault("collected", _put((assignments, "assign", _all_at_once))),
    "V1 lost updates": Fault("engine", _engine),
    "V4 containers are left out": Fault("compiled", _put((writers, "OWN_CONTAINER", _Everything()))),
    "V7 dense sums of sparse gradients": Fault("scaled", _put((accumulate, "sum_for", _always_dense))),
    "V8 every update is undone": Fault("scaled", _put((update_ops, "_nearest", lambda name, others: set(others)))),
    "V9 gathered updates stay": Fault(
        "scaled", _put((optimizer.LossScaleOptimizer, "undo_updates", lambda self, given: []))
    ),
    "V10 sums in float16": Fault("scaled", _put((sums, "NARROW", ()))),
    "V11 when_finite in every step": Fault(
        "scaled", _put((accumulate.AccumulatingOptimizer, "when_finite", _when_seen))
    ),
    "V12 no gradients": Fault("scaled", _put((accumulate, "pairs_with_gradients", _without_check))),
    "swapped operands": Fault("session", _swapped),
}
