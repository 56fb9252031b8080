"""Several steps in one run: which are a loop on the device, and how many of them at a time. No TensorFlow.

    feed, feed, feed  ->  a program, three steps  ->  read

A session with iterations_per_loop runs an operation several times, and the last time with whatever else is fetched. The
program of that last step runs all of them, where its other results cost nothing but time and nothing of a step runs
behind it in the session.
"""

from __future__ import annotations

from typing import Any, Collection, Mapping

from npu_shim.engine.partition.nodes import upstream

MOST_BYTES = 1 << 26  # of feeds that a loop takes at a time: they lie in memory twice, and large steps need no loop


def why_none(step: Any, operations: Collection[str]) -> str | None:
    """Returns why steps of a run cannot be a loop on the device, None if they can.

    Args:
        step: the `step.Step` of the last of them.
        operations: names of the operations that all of them run.
    """
    repeated, last = upstream(step.nodes, operations), step.cut.programs[-1]
    if len(step.cut.programs) > 1:
        return "what runs in the session in the middle of each step divides it"
    for name in sorted(step.nodes):
        node = step.nodes[name]
        if name not in repeated and not node.shared:
            return "'%s' (%s) belongs to the last step only" % (name, node.op)
        if name in repeated and (name in last.hosts or name in last.effects):
            return "'%s' (%s) runs in the session after each step" % (name, node.op)
    fed = step.feed.access
    both = sorted(fed.touched.intersection(step.updated)) + sorted(fed.written.intersection(step.handles))
    return "what feeds a step takes variable '%s', which belongs to the steps" % both[0] if both else None


def most_steps(count: int, feeds: Mapping[str, Any]) -> int:
    """Returns how many of `count` steps run at a time, given the feeds of one: dict of name to np.ndarray."""
    size: int = sum(array.nbytes for array in feeds.values())
    return max(1, min(count, MOST_BYTES // max(size, 1)))
