"""What the values between attention's products are, and what elementwise ops make of them. No TensorFlow.

    S  scores: q k^T, factors, biases, masks    P  probabilities: softmax of S         M  dropout's mask, of 0 and 1
    G  gradient of P as the second product's gradient gives it: d_out v^T              Z  row sums of exp(S)

    P * M / keep                 Factors(factor=1/keep, shares=1, kept=True)
    exp(S), exp(S) / Z           Factors(shares=1, total=1), Factors(shares=1)         softmax written by hand
    G * M - sum of G * M * P     Centred
    P * that                     Slope, the gradient of S

Axes are letters: b and h of the batch, s of the queries, t of the keys, d and e of what is summed; 1 for a dimension
of size 1 that was summed.
"""

from __future__ import annotations

from typing import NamedTuple, Sequence, Union

from npu_shim.rewriter.ir.graph import Value
from npu_shim.xla.passes.attention.matching.rounding import rounded_number

NARROW = frozenset(["bfloat16", "float16"])


class Hidden(NamedTuple):
    """What hides scores: a value of bools, or of zeros and ones in another dtype, and which of both hides (`when`)."""

    value: Value
    when: bool
    dtype: str = "bool"


class Bias(NamedTuple):
    """A value that is added to the scores, times a factor.

    Attributes:
        value: the value.
        factor: what multiplies it.
        dtype: the name of the dtype in which it is added.
        rounded: the name of the dtype of 16 bits to which the sum is rounded, "" for none.
    """

    value: Value
    factor: float
    dtype: str
    rounded: str = ""


class Fill(NamedTuple):
    """A number that stands in the place of scores where they are hidden; the name of its dtype."""

    hidden: Hidden
    number: float
    dtype: str

    def times(self, number: float) -> Fill:
        """The same, times a number."""
        return self._replace(number=rounded_number(self.number * number, self.dtype))

    def cast(self, dtype: str) -> Fill:
        """The same in another dtype."""
        return self._replace(number=rounded_number(self.number, dtype), dtype=dtype)


Step = Union[Bias, Fill]


class Scores(NamedTuple):
    """What becomes of the product of queries and keys, step by step.

    Attributes:
        axes: its letters.
        factor: of the product, before all steps.
        steps: Biases and Fills, in order; what is hidden by one loses all that came before.
        after: factor of the product and of the Biases behind the last Bias; the numbers of Fills have it already.
        is_shifted: whether each row has been shifted by a number of its own, which a softmax does not see.
    """

    axes: str
    factor: float = 1.0
    steps: tuple[Step, ...] = ()
    after: float = 1.0
    is_shifted: bool = False

    def hidden(self, behind: int = 0) -> tuple[Hidden, ...]:
        """What hides the product, or what is left of the first `behind` steps."""
        return tuple(step.hidden for step in self.steps[behind:] if isinstance(step, Fill))

    def times(self, number: float) -> Scores:
        """The scores times a number, which stays behind the sum with a Bias: that is where TensorFlow rounds."""
        steps = tuple(step.times(number) if isinstance(step, Fill) else step for step in self.steps)
        return self._replace(steps=steps, after=self.after * number)

    def distributed(self) -> Scores:
        """The same scores with the factor `after` in the product and in each Bias."""
        steps = tuple(
            step._replace(factor=step.factor * self.after) if isinstance(step, Bias) else step for step in self.steps
        )
        return self._replace(factor=self.factor * self.after, steps=steps, after=1.0)

    def cast(self, dtype: str) -> Scores:
        """The scores in another dtype; one of 16 bits rounds sums with Biases that nothing has rounded."""
        sums = [step for step in self.steps if isinstance(step, Bias) and not step.rounded]
        scores = self.distributed() if sums and dtype in NARROW else self
        return scores._replace(steps=tuple(_cast(step, dtype) for step in scores.steps))


def _cast(step: Step, dtype: str) -> Step:
    if isinstance(step, Fill):
        return step.cast(dtype)
    return step._replace(rounded=dtype) if dtype in NARROW and not step.rounded else step


class RowMaximum(NamedTuple):
    """The largest score of each row."""

    axes: str


class Factors(NamedTuple):
    """factor * P^shares * G^gradient * M^kept * Z^total; `is_summed` over the keys."""

    axes: str
    factor: float = 1.0
    shares: int = 0
    gradient: int = 0
    kept: bool = False
    total: int = 0
    is_summed: bool = False


class Centred(NamedTuple):
    """factor * Z^total * (G * M^kept - sum over the keys of P * G * M^kept)."""

    axes: str
    factor: float
    kept: bool
    total: int


class Slope(NamedTuple):
    """The gradient of the scores, times a factor; 0 where one of `hidden` hides."""

    axes: str
    factor: float
    kept: bool
    hidden: tuple[Hidden, ...] = ()


class Zero(NamedTuple):
    """Sums of a Slope over the keys, and what is multiplied by them: the gradient of a row's maximum."""

    axes: str


class Indicator(NamedTuple):
    """Where a row has its maximum: it counts only beside a Zero."""

    axes: str


Term = Union[Scores, RowMaximum, Factors, Centred, Slope, Zero, Indicator]
Linear = (Scores, Factors, Centred, Slope)  # terms that have a factor


NAMES = {
    Scores: "scores",
    RowMaximum: "largest scores",
    Centred: "gradient of the probabilities",
    Slope: "gradient of the scores",
    Zero: "gradient of the largest scores",
    Indicator: "places of the largest scores",
}


def name_of(term: Term) -> str:
    """What a term is, in a report."""
    if isinstance(term, Factors):
        return "gradient of the probabilities" if term.gradient else "probabilities" if term.shares else "row sums"
    return NAMES[type(term)]


def scaled(term: Term, number: float) -> Term:
    """A term times a number."""
    if isinstance(term, Scores):
        scores = term.times(number)
        is_exact = abs(number) == 1 or not any(isinstance(step, Bias) for step in term.steps)
        return scores.distributed() if is_exact else scores
    return term._replace(factor=term.factor * number) if isinstance(term, Linear) else term


def hiding(slope: Slope, hidden: Hidden) -> Slope:
    """The gradient of the scores, 0 where more is hidden."""
    return slope if hidden in slope.hidden else slope._replace(hidden=(*slope.hidden, hidden))


def joined(axes: str, other: str) -> str | None:
    """The axes of two terms together, where one may have 1 for what was summed; None if they do not fit."""
    if len(axes) != len(other):
        return None
    letters = [max(pair) for pair in zip(axes, other)]  # "1" is before all letters
    fits = all("1" in pair or pair[0] == pair[1] for pair in zip(axes, other))
    return "".join(letters) if fits else None


def multiplied(x: Term, y: Term) -> Term | None:
    """The product of two terms, None for one that has no part in attention."""
    axes = joined(x.axes, y.axes)
    if axes is None:
        return None
    if isinstance(x, Zero) or isinstance(y, Zero):
        return Zero(axes)
    if isinstance(x, Centred) or isinstance(y, Centred):
        return _slope(axes, *((x, y) if isinstance(y, Centred) else (y, x)))
    if isinstance(x, Factors) and isinstance(y, Factors):
        return _product(axes, x, y)
    return None


def _product(axes: str, x: Factors, y: Factors) -> Factors | None:
    if (x.is_summed and y.shares) or (y.is_summed and x.shares):
        return None
    return Factors(
        axes, x.factor * y.factor, x.shares + y.shares, x.gradient + y.gradient, x.kept or y.kept,
        x.total + y.total, x.is_summed or y.is_summed,
    )  # fmt: skip


def _slope(axes: str, weights: Term, centred: Term) -> Slope | None:
    """The gradient of the scores, of the probabilities and the centred gradient."""
    if not isinstance(weights, Factors) or not isinstance(centred, Centred):
        return None
    plain = weights == Factors(weights.axes, weights.factor, shares=1, total=-centred.total)
    return Slope(axes, weights.factor * centred.factor, centred.kept) if plain else None


def divided(x: Term, y: Term) -> Term | None:
    """Returns x / y, where y is a sum of exponentials; None for another."""
    axes = joined(x.axes, y.axes)
    if axes is None:
        return None
    if isinstance(x, (Zero, Indicator)) and isinstance(y, Indicator):
        return x._replace(axes=axes)
    is_total = isinstance(y, Factors) and y == Factors(y.axes, y.factor, total=y.total)
    if is_total and isinstance(y, Factors) and isinstance(x, (Factors, Centred)):
        return x._replace(axes=axes, factor=x.factor / y.factor, total=x.total - y.total)
    return None


def added(terms: Sequence[Term]) -> Term | None:
    """The sum of terms, None for one that has no part in attention."""
    rest = [term for term in terms if not isinstance(term, Zero)]
    axes: str | None = terms[0].axes
    for term in terms[1:]:
        axes = None if axes is None else joined(axes, term.axes)
    if axes is None:
        return None
    if len(rest) < 2:
        return (rest[0] if rest else terms[0])._replace(axes=axes)
    if len(rest) == 2 and all(isinstance(term, Factors) for term in rest):
        return _centred(axes, *sorted(rest, key=lambda term: term.is_summed))  # type: ignore[union-attr]
    return None


def _centred(axes: str, gradient: Term, total: Term) -> Centred | None:
    assert isinstance(gradient, Factors)
    assert isinstance(total, Factors)
    plain = gradient == Factors(gradient.axes, gradient.factor, 0, 1, gradient.kept, gradient.total)
    opposite = total == gradient._replace(axes=total.axes, factor=-gradient.factor, shares=1, is_summed=True)
    return Centred(axes, gradient.factor, gradient.kept, gradient.total) if plain and opposite else None


def summed(term: Term) -> Term | None:
    """The sum of a term over the keys, of size 1 in the result; None for one that has no part in attention."""
    axes = term.axes.replace("t", "1")
    if isinstance(term, Zero) or (isinstance(term, Slope) and not term.hidden):
        return Zero(axes)
    if isinstance(term, Indicator):
        return Indicator(axes)
    if not isinstance(term, Factors) or term.is_summed or term.shares != 1:
        return None
    if term.gradient == 1:
        return term._replace(axes=axes, is_summed=True)
    if term.total == 1 and not term.kept:
        return Factors(axes, term.factor, total=1)
    return None
