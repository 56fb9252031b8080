"""Goes from attention's product of queries and keys along its users, and says what each value is. No TensorFlow.

Each node that reads a value of attention must have a part in it: it gives another such value, or one of the results
(out, dq, dk, dv, dbias). Anything else is a Miss, so that nobody is left who reads what a kernel does not write.
"""

from __future__ import annotations

import heapq
from typing import Any, Callable, Iterable, Mapping, NamedTuple, Sequence

from npu_shim.rewriter.ir.graph import Node, Value
from npu_shim.xla.passes.attention.matching import contractions
from npu_shim.xla.passes.attention.matching.contents import SHAPE_OPS, Contents, dtype_of
from npu_shim.xla.passes.attention.matching.contractions import Contraction, Operand
from npu_shim.xla.passes.attention.matching.dropout import Mask
from npu_shim.xla.passes.attention.matching.misses import Miss
from npu_shim.xla.passes.attention.matching.rounding import close
from npu_shim.xla.passes.attention.matching.terms import Factors, Hidden, Scores, Slope, Term, name_of

NEAREST = 64  # nodes between the gradient of probabilities and the probabilities


class Result(NamedTuple):
    """A result of attention.

    Attributes:
        name: "out", "dq", "dk", "dv" or "dbias".
        operand: the value that it is, and its letters.
        factor: of dq, dk and dbias: what multiplies the gradient of the scores, the factor of dropout included.
    """

    name: str
    operand: Operand
    factor: float = 1.0


class Walk:
    """What is known of one attention.

    Args:
        product: the Contraction of queries and keys, in the letters of terms.py.
        sizes: letter -> size.
        contents: what is known of constants and shapes.
        place: of each node in topological order.
        rules: op -> what it makes of attention's values.

    Attributes:
        dtype: of that product.
        q, k: the Operands of that product.
        axes: the letters of the scores.
        v: the Operand of values, None until the second product has been found.
        d_out: the Operand of the gradient of `out`, None if there is none.
        weights: what the values are multiplied by, Factors.
        scores: the Scores of which the softmax is taken.
        soft: the node that takes it.
        mask: dropout's Mask, None for none.
        drawn: the shape of what it draws, [b, h, s, t], each 1 or that of the scores.
        results: the Results.
        nodes: all nodes that have a part in it.
    """

    def __init__(
        self,
        product: Contraction,
        sizes: dict[str, int],
        contents: Contents,
        place: Mapping[Node, int],
        rules: Mapping[str, Callable[[Any, Node], Term | None]],
    ) -> None:
        self.sizes, self.contents, self.axes = sizes, contents, product.result
        self.dtype = dtype_of(product.node)
        self.q, self.k = sorted((product.first, product.second), key=lambda operand: "t" in operand.axes)
        self.v: Operand | None = None
        self.d_out: Operand | None = None
        self.weights: Factors | None = None
        self.scores: Scores | None = None
        self.soft: Node | None = None
        self.mask: Mask | None = None
        self.drawn: tuple[int, ...] = ()
        self.results: list[Result] = []
        self.nodes: dict[Node, None] = {product.node: None}
        self.place, self._rules = place, rules
        self._terms: dict[Value, Term] = {product.node.value: Scores(product.result)}
        self._ahead: list[tuple[int, Node]] = []
        self._later: list[tuple[Node, Miss]] = []  # what was met before the second product
        self._seen: set[Node] = {product.node}
        self._go_on(product.node.value)

    # -- the way -------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Goes as far as attention does.

        Raises:
            Miss: it is none, or not one that a kernel computes.
        """
        while self._ahead:
            node = heapq.heappop(self._ahead)[1]
            try:
                term = self._term(node)
            except Miss as miss:
                if self.v is not None:
                    raise
                self._later.append((node, miss))  # perhaps of the gradient, whose products come later
                continue
            self.nodes[node] = None
            if term is not None:
                self._terms[node.value] = term
                self._go_on(node.value)
        if self.v is None:
            raise self._later[0][1] if self._later else Miss("no product takes its probabilities", self.soft)

    def term(self, value: Value) -> Term | None:
        """What a value is, None for one that is not attention's own."""
        return self._terms.get(value)

    def include(self, nodes: Iterable[Node]) -> None:
        """Notes nodes that have a part in it beside those on the way."""
        for node in nodes:
            self.nodes[node] = None
            self._seen.add(node)

    def _go_on(self, value: Value) -> None:
        for user in value.users:
            if user.op not in SHAPE_OPS and user not in self._seen:
                self._seen.add(user)
                heapq.heappush(self._ahead, (self.place[user], user))

    def _term(self, node: Node) -> Term | None:
        rule = self._rules.get(node.op)
        if rule is None:
            raise self.unknown(node)
        return rule(self, node)

    def unknown(self, node: Node) -> Miss:
        """The Miss at a node that has no part in attention."""
        names = [name_of(self._terms[value]) for value in node.inputs if value in self._terms]
        return Miss("'%s' (%s) reads its %s" % (node.name, node.op, " and its ".join(dict.fromkeys(names))), node)

    def known(self, node: Node, term: Term | None) -> Term:
        """A term of a node, Miss for None."""
        if term is None:
            raise self.unknown(node)
        return term

    def shape_of(self, axes: str) -> tuple[int, ...]:
        """The sizes of letters."""
        return tuple(self.sizes.get(letter, 1) for letter in axes)

    # -- what is found on it -------------------------------------------------------------------------------------------

    def begin_softmax(self, node: Node) -> str:
        """Notes the node that takes the softmax of the scores; returns their letters."""
        scores = self._terms[node.inputs[0]]
        if not isinstance(scores, Scores) or self.soft is not None or scores.axes[-1] != "t":
            raise self.unknown(node)
        self.scores, self.soft = scores, node
        return scores.axes

    def take_mask(self, mask: Mask, drawn: tuple[int, ...]) -> None:
        """Notes the mask of dropout, of shape `drawn`; Miss if there is another already."""
        if self.mask and (self.mask.draw is not mask.draw or self.mask.keep != mask.keep):
            raise Miss("it has two dropouts, '%s' and '%s'" % (self.mask.draw.name, mask.draw.name), mask.draw)
        self.mask, self.drawn = self.mask or mask, drawn
        self.include(mask.nodes)

    def require(self, node: Node, slope: Slope, of_scores: float, hidden: Sequence[Hidden]) -> None:
        """Miss if the gradient of the scores has other factors than the forward pass, or is 0 elsewhere.

        Args:
            node: what reads the gradient.
            slope: the gradient.
            of_scores: what multiplies in the scores that whose gradient it is.
            hidden: what hides that.
        """
        assert self.weights is not None
        if slope.kept != self.weights.kept:
            raise Miss("its gradient has another dropout: '%s' (%s)" % (node.name, node.op), node)
        expected = of_scores * self.weights.factor
        if not close(slope.factor, expected, self.dtype):
            text = "'%s' (%s) takes %.4g times the gradient of its scores, expected %.4g"
            raise Miss(text % (node.name, node.op, slope.factor, expected), node)
        odd = set(slope.hidden) ^ set(hidden)
        if odd:
            text = "'%s' (%s) takes the gradient of its scores, and '%s' hides other ones there than in the scores"
            raise Miss(text % (node.name, node.op, min(str(hidden_by.value) for hidden_by in odd)), node)

    # -- products ------------------------------------------------------------------------------------------------------

    def contracted(self, node: Node) -> None:
        """A product: the second one, or one of the gradient's."""
        labelled = [value for value in node.inputs if value in self._terms]
        product = contractions.of_node(node, len(self._terms[labelled[0]].axes))
        if product is None or len(labelled) != 1:
            raise self.unknown(node)
        term, (own, other) = self._terms[labelled[0]], product.other(labelled[0])
        letters = dict(zip(own.axes, term.axes))
        gone = "".join(letters[letter] for letter in own.axes if letter not in product.result)
        name, known, factor = self._result(node, term, other, gone)
        axes = _renamed(product, letters, other, known, "e")
        if axes is None or not self._fits(node, axes[1]):
            raise self.unknown(node)
        self.results.append(Result(name, Operand(node.value, axes[1]), factor))
        if self.v is None:
            assert isinstance(term, Factors)
            self.v, self.weights = Operand(other.value, axes[0]), term
            self._begin_gradient(self.v)

    def _result(self, node: Node, term: Term, other: Operand, gone: str) -> tuple[str, str | None, float]:
        """(name of a Result, letters of the product's other operand if they are known, factor), by what is summed."""
        if gone == "t" and self._are_weights(term) and (self.v is None or other.value is self.v.value):
            return "out", self.v.axes if self.v else None, 1.0
        if gone == "s" and self.d_out and term == self.weights and other.value is self.d_out.value:
            return "dv", self.d_out.axes, 1.0
        partner = {"t": self.k, "s": self.q}.get(gone)
        if partner is None or not isinstance(term, Slope) or other.value is not partner.value:
            raise self.unknown(node)
        assert self.scores is not None
        self.require(node, term, self.scores.factor * self.scores.after, self.scores.hidden())
        return "dq" if gone == "t" else "dk", partner.axes, term.factor

    def _are_weights(self, term: Term) -> bool:
        plain = isinstance(term, Factors) and term == Factors(term.axes, term.factor, shares=1, kept=term.kept)
        return plain and self.weights in (None, term)

    def _begin_gradient(self, values: Operand) -> None:
        """Finds the gradient of the probabilities: the product of the values with what is `d_out` then."""
        for node in values.value.users:
            product = contractions.of_node(node, len(values.axes)) if node not in self._seen else None
            if product is not None:
                self._take_gradient(product, values)
        for node, _ in self._later:
            heapq.heappush(self._ahead, (self.place[node], node))
        self._later = []

    def _take_gradient(self, product: Contraction, values: Operand) -> None:
        own, other = product.other(values.value)
        letters = dict(zip(own.axes, values.axes))
        if [letters[letter] for letter in own.axes if letter not in product.result] != ["e"]:
            return
        axes = _renamed(product, letters, other, None, "s")
        if axes is None or sorted(axes[1]) != sorted(self.axes) or not self._meets(product.node):
            return
        if self.d_out is not None and other.value is not self.d_out.value:
            raise Miss("two gradients reach its result: '%s' and '%s'" % (self.d_out.value, other.value), product.node)
        self.d_out = Operand(other.value, axes[0])
        self.include([product.node])
        self._terms[product.node.value] = Factors(axes[1], gradient=1)
        self._go_on(product.node.value)

    def _meets(self, node: Node) -> bool:
        """Whether probabilities of this attention meet a product: other attention may have the same values."""
        seen = {node}
        ahead = [node]
        while ahead and len(seen) < NEAREST:
            for user in ahead.pop().value.users:
                if any(value in self._terms for value in user.inputs):
                    return True
                if user not in seen and user.op in self._rules and user.op not in contractions.OPS:
                    seen.add(user)
                    ahead.append(user)
        return False

    def _fits(self, node: Node, axes: str) -> bool:
        """Whether a result has the sizes that its letters say; notes that of e."""
        shape = self.contents.shape(node.value)
        if shape is None or len(shape) != len(axes):
            return False
        return all(self.sizes.setdefault(letter, size) == size for letter, size in zip(axes, shape))


def _renamed(
    product: Contraction, letters: dict[str, str], other: Operand, known: str | None, fresh: str
) -> tuple[str, str] | None:
    """(letters of the other operand, of the result) in the letters of terms.py; None if they contradict each other.

    Args:
        product: a Contraction.
        letters: its letters -> those of terms.py, as far as one operand says.
        other: its other operand.
        known: the letters of that, if they are known.
        fresh: what a letter of it is if they are not.
    """
    letters = dict(letters)
    for number, letter in enumerate(other.axes):
        wanted = known[number] if known else letters.get(letter, fresh)
        if letters.setdefault(letter, wanted) != wanted:
            return None
    axes, result = ("".join(letters[letter] for letter in letters_of) for letters_of in (other.axes, product.result))
    repeated = any(len(set(letters_of)) < len(letters_of) for letters_of in (axes, result))
    return None if repeated else (axes, result)
