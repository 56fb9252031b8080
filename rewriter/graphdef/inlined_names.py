"""What the name of a node says: the functions that it was inlined from."""

from __future__ import annotations

import re

_TRACES = re.compile(r"/(then|else|cond|body|branch\d+)/_\d+(?=/)|\[\w+\](?=/)")


def without_traces(name: str) -> str:
    """A node's name without what inlining wrote into it: TensorFlow's "/then/_4", and the "[then]" of ours."""
    return _TRACES.sub("", name)


def place(name: str) -> str:
    """The same text for TensorFlow's name of an inlined node and for ours, which a plan shows.

    while/body/_1/cond/else/_51/MatMul and while[body]/cond[else]/MatMul    while/cond[else]/MatMul
    """
    return _TRACES.sub(lambda trace: "[%s]" % trace[1] if trace[1] else trace[0], name).replace("[body]", "")
