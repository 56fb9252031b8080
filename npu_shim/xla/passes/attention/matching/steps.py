"""What each op makes of attention's values between its products. No TensorFlow.

Each function takes the Walk and a node of which at least one input is attention's, and gives the Term that its value
is, None for a result of attention; Miss for what has no part in it.
"""

from __future__ import annotations

from typing import Callable, Mapping, Sequence

from npu_shim.rewriter.ir.graph import Node, Value
from npu_shim.xla.passes.attention.matching import choices, contractions, dropout, terms
from npu_shim.xla.passes.attention.matching.contractions import Operand
from npu_shim.xla.passes.attention.matching.misses import Miss
from npu_shim.xla.passes.attention.matching.rounding import rounded_number
from npu_shim.xla.passes.attention.matching.terms import (
    Bias,
    Factors,
    Fill,
    Hidden,
    Indicator,
    RowMaximum,
    Scores,
    Slope,
    Term,
)
from npu_shim.xla.passes.attention.matching.walk import Result, Walk

SAME = frozenset(["CheckNumerics", "EnsureShape", "Identity", "PreventGradient", "Snapshot"])
WIDE = frozenset(["float32", "float64"])
VIEWS = frozenset(["BroadcastTo", "ExpandDims", "Reshape", "Squeeze", "Tile"])


def same(walk: Walk, node: Node) -> Term:
    """The first input, which alone is attention's."""
    return walk.known(node, walk.term(node.inputs[0]))


def cast(walk: Walk, node: Node) -> Term:
    """The same in another dtype: a wider one, or that of the products, to which they are rounded as well."""
    term, dtype = same(walk, node), repr(node.attrs["DstT"])
    if dtype != walk.dtype and dtype not in WIDE:
        raise Miss("'%s' (Cast) rounds its %s to %s, its products are %s" % (
            node.name, terms.name_of(term), dtype, walk.dtype), node)  # fmt: skip
    return term.cast(dtype) if isinstance(term, Scores) else term


# -- factors, masks and biases -----------------------------------------------------------------------------------------


def multiplied(walk: Walk, node: Node) -> Term:
    """A product of terms, or of one with a constant or a mask."""
    x, y = map(walk.term, node.inputs)
    if x is not None and y is not None:
        return walk.known(node, terms.multiplied(x, y))
    term, other = (x, node.inputs[1]) if x is not None else (y, node.inputs[0])
    assert term is not None
    number = walk.contents.number(other)
    if number is not None:
        return terms.scaled(term, number)
    if isinstance(term, (Scores, Slope)) and choices.are_choices(other):
        dtype = repr(node.attrs["T"])
        return _hidden(walk, node, term, Fill(choices.hidden_by(other, dtype), 0.0, dtype))
    return _kept(walk, node, term, other)


def selected(walk: Walk, node: Node) -> Term:
    """Of tf.where: dropout's, a mask of scores, or what that leaves of their gradient."""
    where, *sides = node.inputs
    taken = [number for number, side in enumerate(sides) if walk.term(side) is not None]
    if len(taken) != 1 or walk.term(where) is not None:
        raise walk.unknown(node)
    term, other = walk.term(sides[taken[0]]), sides[1 - taken[0]]
    hidden, dtype = Hidden(where, bool(taken[0])), repr(node.attrs["T"])
    if isinstance(term, Scores):
        number = walk.contents.uniform(other.node)
        if number is None:
            raise Miss("'%s' (%s) puts '%s' in the place of scores, which is no single number" % (
                node.name, node.op, other), node)  # fmt: skip
        return _hidden(walk, node, term, Fill(hidden, rounded_number(number, dtype), dtype))
    if term is None or not _is_zero(walk, other):
        raise walk.unknown(node)
    return _hidden(walk, node, term, Fill(hidden, 0.0, dtype)) if isinstance(term, Slope) else _kept(
        walk, node, term, where)  # fmt: skip


def _hidden(walk: Walk, node: Node, term: Scores | Slope, fill: Fill) -> Term:
    """Scores, or their gradient, of which some are hidden."""
    shape, whole = walk.contents.shape(fill.hidden.value), walk.shape_of(term.axes)
    is_v1 = node.op == "Select" and len(shape or ()) != len(whole)  # it selects whole rows by a vector
    if is_v1 or not _broadcasts(shape, whole) or walk.contents.shape(node.value) != whole:
        raise walk.unknown(node)
    if isinstance(term, Slope):
        return terms.hiding(term, fill.hidden)
    if term.is_shifted:
        raise Miss("'%s' (%s) hides scores behind the shift of their rows" % (node.name, node.op), node)
    return term._replace(steps=(*term.steps, fill))


def _broadcasts(shape: Sequence[int] | None, whole: Sequence[int]) -> bool:
    """Whether a shape broadcasts to that of the scores."""
    return shape is not None and len(shape) <= len(whole) and all(
        one in (1, size) for one, size in zip(reversed(shape), reversed(whole)))  # fmt: skip


def _is_zero(walk: Walk, value: Value) -> bool:
    """Whether a value is zeros; notes a node that asks attention for their shape."""
    if value.node.op == "ZerosLike":
        if walk.term(value.node.inputs[0]) is not None:
            walk.include([value.node])
        return True
    return walk.contents.uniform(value.node) == 0


def _kept(walk: Walk, node: Node, term: Term, mask: Value) -> Term:
    """A term times the mask of dropout."""
    dropped = dropout.mask_of(mask, walk.contents) if isinstance(term, Factors) else None
    if dropped is None or not isinstance(term, Factors):
        raise walk.unknown(node)
    walk.take_mask(dropped, _drawn(walk, node, term, mask, dropped.draw.name))
    return term._replace(kept=True)


def _drawn(walk: Walk, node: Node, term: Term, mask: Value, name: str) -> tuple[int, ...]:
    """The shape of what dropout draws, [b, h, s, t]."""
    shape, sizes = walk.contents.shape(mask) or (), dict.fromkeys("bhst", 1)
    sizes.update(zip(reversed(term.axes), reversed(shape)))
    if any(size not in (1, walk.sizes.get(letter, 1)) for letter, size in sizes.items()):
        raise walk.unknown(node)
    if sizes["t"] != walk.sizes["t"]:
        raise Miss("its dropout '%s' has one mask for several of its keys" % name, node)
    return tuple(sizes[letter] for letter in "bhst")


def divided(walk: Walk, node: Node) -> Term:
    """A term over a constant, or over row sums."""
    x, y = map(walk.term, node.inputs)
    if x is not None and y is not None:
        return walk.known(node, terms.divided(x, y))
    number = walk.contents.number(node.inputs[1])
    if x is None or not number:
        raise walk.unknown(node)
    return terms.scaled(x, 1 / number)


def negated(walk: Walk, node: Node) -> Term:
    """A term times -1."""
    return terms.scaled(same(walk, node), -1.0)


def added(walk: Walk, node: Node) -> Term:
    """A sum of terms, or scores and a bias."""
    terms_of_sum = [walk.term(value) for value in node.inputs]
    signs = (1.0, -1.0) if node.op == "Sub" else (1.0,) * len(terms_of_sum)
    scored = [number for number, term in enumerate(terms_of_sum) if isinstance(term, Scores)]
    if len(scored) == 1 and len(terms_of_sum) == 2:
        return _with_bias(walk, node, scored[0], signs)
    parts = [terms.scaled(term, sign) for term, sign in zip(terms_of_sum, signs) if term is not None]
    return walk.known(node, terms.added(parts) if len(parts) == len(terms_of_sum) else None)


def _with_bias(walk: Walk, node: Node, number: int, signs: Sequence[float]) -> Term:
    scores, other = terms.scaled(_scores(walk, node, number), signs[number]), node.inputs[1 - number]
    assert isinstance(scores, Scores)
    if isinstance(walk.term(other), RowMaximum) and node.op == "Sub" and not number:
        return scores._replace(is_shifted=True)  # softmax is the same whatever a row is shifted by
    if walk.term(other) is not None:
        raise walk.unknown(node)
    shape, whole = walk.contents.shape(other), walk.shape_of(scores.axes)
    if shape is None:
        raise Miss("the shape of its bias '%s' is not known" % other, node)
    if not _broadcasts(shape, whole):
        raise Miss("its bias '%s' has shape %s, its scores %s" % (other, list(shape), list(whole)), node)
    return _pushed(walk, scores, other, signs[1 - number], repr(node.attrs["T"]))


def _pushed(walk: Walk, scores: Scores, bias: Value, sign: float, dtype: str) -> Scores:
    """Scores and a bias; where that is 0 but for what has just been hidden, it is a number to fill that with."""
    last = scores.steps[-1] if scores.steps else None
    if isinstance(last, Fill) and not last.hidden.when:
        number = choices.pushed(bias, last.hidden.value, dtype, walk.contents)
        if number is not None:
            filled = last._replace(number=rounded_number(last.number + sign * number, dtype), dtype=dtype)
            return scores._replace(steps=(*scores.steps[:-1], filled))
    scores = scores.distributed()
    return scores._replace(steps=(*scores.steps, Bias(bias, sign, dtype, dtype if dtype in terms.NARROW else "")))


def _scores(walk: Walk, node: Node, number: int) -> Scores:
    """The Scores that an input is."""
    scores = walk.term(node.inputs[number])
    assert isinstance(scores, Scores)
    return scores


# -- rows --------------------------------------------------------------------------------------------------------------


def softmax(walk: Walk, node: Node) -> Term:
    """The probabilities of the scores."""
    return Factors(walk.begin_softmax(node), shares=1)


def exponential(walk: Walk, node: Node) -> Term:
    """What a softmax written by hand begins with."""
    return Factors(walk.begin_softmax(node), shares=1, total=1)


def maximum(walk: Walk, node: Node) -> Term:
    """The largest score of each row."""
    term = same(walk, node)
    if not isinstance(term, Scores) or _reduced(walk, node, term) != "t":
        raise walk.unknown(node)
    return RowMaximum(term.axes.replace("t", "1" if node.attrs.get("keep_dims") else ""))


def compared(walk: Walk, node: Node) -> Term:
    """Where a row has its maximum, as the maximum's gradient asks."""
    kinds = {type(walk.term(value)) for value in node.inputs}
    if kinds != {Scores, RowMaximum}:
        raise walk.unknown(node)
    return Indicator(walk.axes)


def summed(walk: Walk, node: Node) -> Term | None:
    """A sum over the keys, over nothing, or over what a bias is broadcast along."""
    term = same(walk, node)
    gone = _reduced(walk, node, term)
    if not gone:
        return term
    if gone == "t" and not (isinstance(term, Slope) and term.hidden):
        summed_axes = walk.known(node, terms.summed(term))
        return (
            summed_axes if node.attrs.get("keep_dims") else summed_axes._replace(axes=summed_axes.axes.replace("1", ""))
        )
    if not isinstance(term, Slope):
        raise walk.unknown(node)
    _take_bias_gradient(walk, node, term, gone)
    return None


def _take_bias_gradient(walk: Walk, node: Node, term: Slope, gone: str) -> None:
    """A sum of the scores' gradient is that of the bias which is broadcast so."""
    assert walk.scores is not None
    scores = walk.scores
    biases = [(number, step) for number, step in enumerate(scores.steps) if isinstance(step, Bias)]
    if len(biases) > 1:
        raise Miss("'%s' (%s) is the gradient of one of its %d biases, the kernel has that of a sole one" % (
            node.name, node.op, len(biases)), node)  # fmt: skip
    if not biases or sorted(_broadcast_along(walk, biases[0][1].value)) != sorted(gone):
        raise walk.unknown(node)
    number, bias = biases[0]
    walk.require(node, term, bias.factor * scores.after, scores.hidden(number))
    kept = node.attrs.get("keep_dims")
    axes = "".join(("1" if kept else "") if letter in gone else letter for letter in term.axes)
    walk.results.append(Result("dbias", Operand(node.value, axes), term.factor))


def _broadcast_along(walk: Walk, value: Value) -> str:
    """The letters of the scores along which a bias is broadcast."""
    shape = walk.contents.shape(value) or ()
    shape = (1,) * (len(walk.axes) - len(shape)) + shape
    return "".join(letter for letter, size in zip(walk.axes, shape) if size == 1 and walk.sizes[letter] > 1)


def _reduced(walk: Walk, node: Node, term: Term) -> str:
    """The letters that a reduction reduces, but for those of size 1."""
    axes = walk.contents.integers(node.inputs[1])
    if axes is None:
        raise walk.unknown(node)
    return "".join(letter for letter in (term.axes[axis] for axis in axes) if walk.sizes.get(letter, 1) > 1)


# -- shapes ------------------------------------------------------------------------------------------------------------


def viewed(walk: Walk, node: Node) -> Term:
    """The same elements in another shape: only sums over the keys may get one, of size 1 there."""
    term, shape = same(walk, node), walk.contents.shape(node.value)
    axes = None if shape is None else _axes_of(walk, shape, term)
    if axes is None:
        raise walk.unknown(node)
    return term._replace(axes=axes)


def _axes_of(walk: Walk, shape: Sequence[int], term: Term) -> str | None:
    """The letters that a term has in a shape, None if it has none."""
    if tuple(shape) == walk.shape_of(term.axes):
        return term.axes
    is_row = "t" not in term.axes and not isinstance(term, (Scores, Slope))
    row = walk.axes.replace("t", "1")
    others = (walk.axes, row, row.replace("1", "")) if is_row else ()
    return next((axes for axes in others if tuple(shape) == walk.shape_of(axes)), None)


def transposed(walk: Walk, node: Node) -> Term:
    """The same elements with dimensions in another order."""
    term, order = same(walk, node), walk.contents.integers(node.inputs[1])
    if order is None or isinstance(term, Scores):
        raise walk.unknown(node)
    return term._replace(axes="".join(term.axes[axis] for axis in order))


RULES: Mapping[str, Callable[[Walk, Node], Term | None]] = {
    **dict.fromkeys(SAME, same),
    **dict.fromkeys(VIEWS, viewed),
    **dict.fromkeys(contractions.OPS, Walk.contracted),
    **dict.fromkeys(["Add", "AddN", "AddV2", "Sub"], added),
    **dict.fromkeys(["Div", "RealDiv"], divided),
    **dict.fromkeys(["Select", "SelectV2"], selected),
    "Cast": cast,
    "Equal": compared,
    "Exp": exponential,
    "Max": maximum,
    "Mul": multiplied,
    "Neg": negated,
    "Softmax": softmax,
    "Sum": summed,
    "Transpose": transposed,
}
