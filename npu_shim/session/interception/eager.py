"""Eager training under `npu-shim run`: an error where the command line asks for what only sessions can give.

A script for TensorFlow 2 is told so at its first gradient, asked or not. A TensorFlow 1 script that trains eagerly
would run for hours in float32 before a line at its end says that nothing was done. One that computes something eagerly
on the way, and trains in sessions, runs. So the first gradient decides.
"""

from __future__ import annotations

import functools
import os
from typing import Any, Sequence

from npu_shim.options.reports import doors, ledger
from npu_shim.rewriter import tf_internals
from npu_shim.rewriter.errors import ConfigError

FOR_TENSORFLOW_1 = (
    "tf.GradientTape takes no gradient of a reference variable, which is what TensorFlow 1 makes. npu-shim run is for "
    "the graphs and sessions of TensorFlow 1: run a script for TensorFlow 2 with python itself; a TensorFlow 1 script "
    "with tapes calls tf.enable_resource_variables() first"
)


def refuse_training(asked: Sequence[tuple[str, str, str]]) -> None:
    """Lets the first eager gradient of this process be an error while no session has met any of the requests.

    Args:
        asked: (name, word, key of `doors.DOORS`) of each request of the command line.
    """
    gradients = tf_internals.eager_gradients()
    compute = gradients.imperative_grad

    @functools.wraps(compute)
    def refusing(*args: Any, **kwargs: Any) -> Any:
        if asked and tf_internals.executing_eagerly_outside_functions():
            _require_met(asked)
        try:
            return compute(*args, **kwargs)
        except AttributeError as reason:
            if "RefVariable" not in str(reason):
                raise
            raise ConfigError(FOR_TENSORFLOW_1) from reason

    gradients.imperative_grad = refusing


def _require_met(asked: Sequence[tuple[str, str, str]]) -> None:
    """Raises ConfigError where no session has met any of the requests."""
    folder = os.environ.get(ledger.VARIABLE, "")
    if not folder or any(doors.is_met(ledger.of_folder(folder), door) for _, _, door in asked):
        return
    name, word, door = asked[0]
    raise ConfigError(
        "npu-shim run %s %s: it %s, and the script trains eagerly, without any. This is for the graphs and sessions of "
        "TensorFlow 1: take tf.enable_eager_execution() out of the script, or run it without %s"
        % (name, word, doors.DOORS[door].takes, name)
    )
