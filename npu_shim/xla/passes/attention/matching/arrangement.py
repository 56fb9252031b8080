"""The steps of scores in the order that a kernel has, see pjrt.attention.spec. No TensorFlow."""

from __future__ import annotations

from typing import NamedTuple

from npu_shim.xla.passes.attention.matching.misses import Miss
from npu_shim.xla.passes.attention.matching.terms import Bias, Fill, Hidden, Scores, Step


class Arrangement(NamedTuple):
    """What a kernel is told of scores.

    Attributes:
        scale: factor of the product.
        bias: the steps that make the bias, in order; none for no bias.
        after: factor behind the bias.
        hidden: what hides scores.
        fill: the number that stands in their place.
        is_over: whether the bias is added behind that.
        rounded: the dtype of 16 bits to which the sum with the bias is rounded, "" for none.
    """

    scale: float
    bias: tuple[Step, ...]
    after: float
    hidden: tuple[Hidden, ...]
    fill: float
    is_over: bool
    rounded: str

    @property
    def is_sole(self) -> bool:
        """Whether the bias is one Bias, so that a kernel can give its gradient."""
        return len(self.bias) == 1 and isinstance(self.bias[0], Bias)


def of_scores(scores: Scores) -> Arrangement:
    """Arranges the steps of scores: biases before masks or behind them; where they alternate, all becomes one bias.

    Raises:
        Miss: a kernel does not round as they do.
    """
    fills = [step for step in scores.steps if isinstance(step, Fill)]
    hidden = tuple(dict.fromkeys(step.hidden for step in fills))
    orders, numbers = [isinstance(step, Fill) for step in scores.steps], {step.number for step in fills}
    rounded = _rounded(scores)
    if len(numbers) <= 1 and orders == sorted(orders):
        fill = numbers.pop() if numbers else 0.0
        return Arrangement(scores.factor, _biases(scores), scores.after, hidden, fill, False, rounded)
    scores = scores.distributed()
    if len(numbers) == 1 and orders == sorted(orders, reverse=True):
        return Arrangement(scores.factor, _biases(scores), 1.0, hidden, numbers.pop(), True, rounded)
    return Arrangement(scores.factor, scores.steps, 1.0, hidden, 0.0, True, rounded)


def _biases(scores: Scores) -> tuple[Bias, ...]:
    return tuple(step for step in scores.steps if isinstance(step, Bias))


def _rounded(scores: Scores) -> str:
    """The dtype of 16 bits to which the sum of all is rounded, "" for none; Miss where a part of it alone is."""
    kinds = [bias.rounded for bias in _biases(scores)]
    last = kinds[-1] if kinds else ""
    early = [kind for kind in kinds if kind not in ("", last)]
    if early:
        raise Miss("its scores are rounded to %s between two of its biases" % early[0])
    return last
