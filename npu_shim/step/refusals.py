"""A step that is not taken: the session runs it, and says why."""

from __future__ import annotations

from typing import Iterable

import jax

from npu_shim.rewriter.errors import PlanError
from npu_shim.step.graph import Node

CONCRETE = (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError)

UNBOUNDED = "it keeps a value of each iteration, and how many there are at most is not known when the step is traced"


class Refusal(PlanError):
    """An op has no rule, a rule does not take such values, or a value had to be known.

    Attributes:
        node: name of the node.
        op: its op.
        feeds: names of the feeds which, if their values were known when the step is traced, might make it possible.
        asked: what would do as well if it were told: names of Switches by which a counter leaves its loop, of sums over
            segments, of tensors ("name:0"); see `told`.
    """

    def __init__(self, node: Node, why: str, feeds: Iterable[str] = (), asked: Iterable[str] = ()) -> None:
        self.node, self.op, self.feeds, self.why = node.name, node.op, tuple(feeds), why
        self.asked = tuple(asked)
        known = ", ".join("'%s'" % name for name in self.feeds)
        super().__init__("%s: %s%s" % (node, why, "; it is computed of feed %s" % known if known else ""))


class Unsupported(ValueError):
    """What a rule raises that does not take such values or attributes; the interpreter names the node."""


def why(reason: Exception) -> str:
    """What a rule's error says: one of the libraries that it computes with is none of the user's words."""
    text = str(reason).partition("\n")[0] or type(reason).__name__
    if isinstance(reason, (Unsupported, PlanError)):
        return text
    if "raced" in text or isinstance(reason, CONCRETE):  # JAX's words for what it was to know
        return "its rule had to know a value that is computed when the step runs"
    return "its rule does not take such values (%s)" % text


class Unbounded(Unsupported):
    """How often a loop runs at most had to be known when the step is traced; the loop's condition is named."""


class Unknown(Unsupported):
    """An input had to be known when the step is traced.

    Attributes:
        number: of the input.
    """

    def __init__(self, number: int, what: str = "") -> None:
        self.number = number
        super().__init__(what or "its input %d had to be known when the step is traced" % number)
