"""What of a step's attention is one kernel, and why not the rest, for people and for files. No TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from npu_shim.xla.passes.attention.matching.pattern import NearMiss, Plan


@dataclass(frozen=True)
class Taken:
    """Attention that became two calls, or one in a graph without its gradient.

    Attributes:
        name: of the node that takes the softmax.
        shape: of its scores, [batch, heads, queries, keys].
        dtype: of its products.
        bias: shape of what is added to the scores, None for nothing.
        hidden: shape of the mask that chooses scores to be hidden, None for none.
        rate: of dropout.
        has_gradient: whether its gradient became a call too.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    bias: tuple[int, ...] | None
    hidden: tuple[int, ...] | None
    rate: float
    has_gradient: bool


@dataclass(frozen=True)
class Attention:
    """What of a step's attention became calls.

    Attributes:
        mode: "auto" or "off".
        taken: tuple of Taken.
        misses: tuple of NearMiss: what looks like attention and stays, each with its reason.
        because: why nothing was looked for, else "".
    """

    mode: str
    taken: tuple[Taken, ...] = ()
    misses: tuple[NearMiss, ...] = ()
    because: str = ""

    def counts(self) -> dict[str, Any]:
        """Returns the summary: mode, number of what is taken forward and backward, name and reason of what stays."""
        return {
            "mode": self.mode,
            "forward": len(self.taken),
            "backward": sum(taken.has_gradient for taken in self.taken),
            "stays": {miss.name: miss.reason for miss in self.misses},
        }

    def as_text(self) -> str:
        """Returns a line, then one for each kind of attention that is taken, and one for each that stays."""
        if self.because:
            return "attention=%s: %s\n" % (self.mode, self.because)
        if not self.taken and not self.misses:
            return "attention=%s: there is none\n" % self.mode
        head = "attention={mode}: {forward} taken, {backward} of them with their gradient, {left} stay\n"
        lines = dict.fromkeys(map(_kind, self.taken))
        text = head.format(**self.counts(), left=len(self.misses)) + "".join("  %s\n" % line for line in lines)
        return text + "".join("  '%s' stays: %s\n" % miss for miss in self.misses)


def _kind(taken: Taken) -> str:
    """One line for all that differ by name only."""
    bias = "" if taken.bias is None else ", bias %s" % list(taken.bias)
    mask = "" if taken.hidden is None else ", mask %s" % list(taken.hidden)
    dropout = ", dropout %.4g" % taken.rate if taken.rate else ""
    return "%s of %s%s%s%s" % (list(taken.shape), taken.dtype, bias, mask, dropout)


OFF = Attention("off", because="it is off")
ELSEWHERE = Attention("auto", because="it becomes kernels in programs for GPUs only")


def described(plan: Plan) -> Attention:
    """Returns what a plan takes and leaves."""
    taken = tuple(
        Taken(match.name, spec.scores, spec.dtype, spec.bias, spec.hidden, spec.rate, match.backward is not None)
        for match in plan.matches
        for spec in [match.forward]
    )
    return Attention("auto", taken, plan.misses)
