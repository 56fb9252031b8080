"""What the name of a node says: the functions it was inlined from, and the node whose gradient it computes."""

from __future__ import annotations

import re
from typing import Collection, Iterator

_GRADIENT = "_grad"
_TRACES = re.compile(r"/(then|else|cond|body|branch\d+)/_\d+(?=/)|\[\w+\](?=/)")


def is_gradient_of(name: str, forward: Collection[str]) -> bool:
    """Whether TensorFlow gives this name to a gradient op of a node in `forward`, whose names have no traces."""
    end = name.find(_GRADIENT + "/")
    while end >= 0:
        parts = name[:end].split("/")
        if any("/".join(parts[start:]) in forward for start in range(1, len(parts))):
            return True
        end = name.find(_GRADIENT + "/", end + 1)
    return any(path in forward for path in _paths_of_gradients(without_traces(name)))


def without_traces(name: str) -> str:
    """A node's name without what inlining wrote into it: TensorFlow's "/then/_4", and the "[then]" of ours."""
    return _TRACES.sub("", name)


def place(name: str) -> str:
    """The same text for TensorFlow's name of an inlined node and for ours, which a plan shows.

    while/body/_1/cond/else/_51/MatMul and while[body]/cond[else]/MatMul    while/cond[else]/MatMul
    """
    return _TRACES.sub(lambda trace: "[%s]" % trace[1] if trace[1] else trace[0], name).replace("[body]", "")


def _paths_of_gradients(name: str) -> Iterator[str]:
    """Yields the calls and the node whose gradient a name in a function says that it is, the outermost first.

    f/gradients/MatMul_grad/MatMul_1                                 f/MatMul
    gradients/f_grad/PartitionedCall/gradients/MatMul_grad/MatMul    f, then f/MatMul
    """
    path: list[str] = []
    parts = name.split("/")
    while parts:
        part = parts.pop(0)
        if not part.startswith("gradients"):
            path.append(part)
            continue
        length = next((k for k, inner in enumerate(parts) if inner.endswith(_GRADIENT)), None)
        if length is None:
            return
        path += [*parts[:length], parts[length][: -len(_GRADIENT)]]
        yield "/".join(path)
        del parts[: length + 2]  # with the name of the gradient's own op
