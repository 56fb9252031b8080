"""Says once that a loss is not a number in a session that computes in float16, or that TensorFlow ended a run for it.

A float16 result beyond 65504 is infinity, and infinity minus infinity is NaN: no loss scale helps in the forward pass.
An Ascend 910 may saturate instead, so that a network which trains there shows NaN here. This looks at what the script
fetches, adds nothing to a graph, and costs a look at each number.
"""

from __future__ import annotations

import math
import re
from typing import Any, Iterator, Mapping

import numpy as np
import tensorflow.compat.v1 as tf

from npu_shim.options import table
from npu_shim.options.precision import SATURATE, policy_of
from npu_shim.rewriter.errors import ConfigError
from npu_shim.rewriter.tables.dtypes import FLOAT16
from npu_shim.session import lines
from npu_shim.session.interception import interceptors

LOSS = re.compile("loss|cost", re.IGNORECASE)
NO_LOSS = re.compile("loss_scale|L2Loss|norm|grad")  # may be infinite in a step that is skipped
# in errors of TensorFlow
ENDED = re.compile(r"\b(nan|inf|infinite|infinity|not finite|not invertible)\b", re.IGNORECASE)
# in every profile: where a chip has an op in float16 only, that mode alone is refused, and force_fp32 rounds its inputs
IN_FLOAT32 = "--precision-mode must_keep_origin_dtype --set npu_shim_profile=gpu"
TEXT = (
    "'%s' is %s in a session with float16. If it is a number in float32 (" + IN_FLOAT32 + "), "
    "values beyond 65504 have become infinite: --calibrate 1 says which ops to keep in float32; --set "
    + SATURATE + "=true keeps them at 65504, as an Ascend 910 may"
)  # fmt: skip
ENDED_TEXT = (
    "TensorFlow ends a run of a session with float16 for what is not finite. If it goes on in float32 "
    "(" + IN_FLOAT32 + "), values beyond 65504 have become infinite: --set "
    + SATURATE + "=true keeps them at 65504, as an Ascend 910 may; bfloat16 has no such bound"
)  # fmt: skip

LOW_TEXT = (
    "'%s' is %s, and the script keeps variables in 16 bits ('%s'): constants and small updates of optimizers vanish in "
    "them. --master-weights gives them float32 masters"
)


def attach(session: tf.Session, values: Mapping[str, Any]) -> None:
    """Has a session's results looked at if its options lower to float16 that does not saturate.

    Args:
        session: tf.Session.
        values: dict of option values.
    """
    try:
        policy = policy_of(table.validate(values))
    except ConfigError:  # the session's first run says so
        return
    if policy.changes and policy.low == FLOAT16 and not values.get(SATURATE):
        interceptors.at_results(session, look)


def look(session: tf.Session, fetches: Any, results: Any) -> None:
    """Tells of the first loss that is not finite among a run's results, or other number that is NaN; then it is done.

    A loss is called so, or fetched with an operation, as training steps are.

    Args:
        session: tf.Session, whose results these are.
        fetches: as for Session.run.
        results: what it returned, or the error that ended it.
    """
    if isinstance(results, tf.errors.OpError):
        if ENDED.search(results.message or ""):
            lines.once(ENDED_TEXT)
        return
    if all(map(math.isfinite, _numbers(results))):
        return
    pairs = list(_pairs(fetches, results))
    trains = any(result is None for _, result in pairs)  # of an operation
    for fetch, result in pairs:
        name, numbers = str(getattr(fetch, "name", fetch)), list(_numbers(result))
        is_loss = trains or LOSS.search(name)
        is_lost = not all(map(math.isfinite, numbers)) if is_loss else any(map(math.isnan, numbers))
        if is_lost and not NO_LOSS.search(name):
            interceptors.at_results(session, None)
            low = _low_variable(session.graph)
            lines.once(LOW_TEXT % (name, result, low) if low else TEXT % (name, result))
            return


def _low_variable(graph: tf.Graph) -> str | None:
    """The name of a trained variable that the script keeps in 16 bits, None where there is none."""
    trained = graph.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES)
    return next((v.op.name for v in trained if v.dtype.base_dtype in (tf.float16, tf.bfloat16)), None)


def _numbers(results: Any) -> Iterator[Any]:
    """The floats of a structure of results."""
    if isinstance(results, (np.floating, float)):
        yield results
    elif isinstance(results, dict):
        for result in results.values():
            yield from _numbers(result)
    elif isinstance(results, (list, tuple)):
        for result in results:
            yield from _numbers(result)


def _pairs(fetches: Any, results: Any) -> Iterator[tuple[Any, Any]]:
    """Each fetch with its result."""
    if isinstance(fetches, dict):
        for key, fetch in fetches.items():
            yield from _pairs(fetch, results[key])
    elif isinstance(fetches, (list, tuple)):
        for fetch, result in zip(fetches, results):
            yield from _pairs(fetch, result)
    else:
        yield fetches, results
