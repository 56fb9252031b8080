"""Finds attention in a step's graph: what of it one kernel can compute, and why not the rest. No TensorFlow.

    softmax  <- scale, biases <- product of q and k        upwards from each softmax
    walk.py: from that product along all users             forward and gradient, dropout and casts with it

The plan has a Match for each attention, and a line for each near miss.
"""

from __future__ import annotations

import collections
import dataclasses
from typing import Callable, Collection, Iterator, NamedTuple, Sequence

from npu_shim.pjrt.attention.spec import BACKWARD, FORWARD, Spec
from npu_shim.rewriter.analysis import order
from npu_shim.rewriter.ir.graph import CONTROL, Graph, Node, Value
from npu_shim.xla.passes.attention.matching import arrangement, contractions
from npu_shim.xla.passes.attention.matching.arrangement import Arrangement
from npu_shim.xla.passes.attention.matching.contents import SHAPE_OPS, Contents, Shape
from npu_shim.xla.passes.attention.matching.contractions import Contraction, Operand
from npu_shim.xla.passes.attention.matching.misses import Miss
from npu_shim.xla.passes.attention.matching.narrowing import Narrowing
from npu_shim.xla.passes.attention.matching.rounding import close
from npu_shim.xla.passes.attention.matching.steps import RULES
from npu_shim.xla.passes.attention.matching.terms import Bias
from npu_shim.xla.passes.attention.matching.walk import Walk

SOFTMAX = frozenset(["Softmax", "Exp"])
UPWARDS = frozenset([
    "Add", "AddV2", "BroadcastTo", "Cast", "ClipByValue", "Div", "EnsureShape", "Identity", "LeakyRelu", "Max",
    "Maximum", "Minimum", "Mul", "Neg", "RealDiv", "Relu", "Reshape", "Select", "SelectV2", "Sigmoid", "Snapshot",
    "StopGradient", "Sub", "Tanh", "Transpose",
])  # fmt: skip
FURTHEST = 48  # nodes between a softmax and its product
DTYPES = ("bfloat16", "float16", "float32")


class Match(NamedTuple):
    """Attention that one kernel forward and one backward can compute.

    Attributes:
        name: of the node that takes the softmax.
        forward: its Spec.
        backward: the Spec of its gradient, None for a graph without.
        walk: what is known of its nodes.
        narrowing: the narrow forms of its biases and masks.
        arranged: what becomes of its scores.
    """

    name: str
    forward: Spec
    backward: Spec | None
    walk: Walk
    narrowing: Narrowing
    arranged: Arrangement


class NearMiss(NamedTuple):
    """What looks like attention and stays as it is: name of the node that takes the softmax, and why."""

    name: str
    reason: str


class Plan(NamedTuple):
    """What is found in a graph."""

    matches: tuple[Match, ...]
    misses: tuple[NearMiss, ...]


def candidates(graph: Graph) -> Iterator[tuple[Node, list[Node]]]:
    """Yields (node that takes a softmax, the products that its input is made of)."""
    for node in graph:
        if node.op in SOFTMAX:
            products = _products(node)
            if products:
                yield node, products


def _products(node: Node) -> list[Node]:
    seen = {node.inputs[0].node: None}
    ahead, products = collections.deque(seen), []
    while ahead and len(seen) < FURTHEST:
        source = ahead.popleft()
        if source.op in contractions.OPS:
            products.append(source)
        for value in source.inputs if source.op in UPWARDS else ():
            if value.node not in seen:
                seen[value.node] = None
                ahead.append(value.node)
    return products


def plan(graph: Graph, contents: Contents, inside: Collection[Node] = ()) -> Plan:
    """Finds attention in a graph.

    Args:
        graph: a Graph.
        contents: what is known of its constants and shapes.
        inside: its nodes in loops and conditionals of TensorFlow 1, of which nothing is taken.
    """
    place = {node: number for number, node in enumerate(order.topological(graph))}
    matches, misses = [], []
    narrowing = Narrowing(contents)
    taken: set[Node] = set()
    for node, products in candidates(graph):
        if node in taken or node in inside:
            continue
        match = _match_at(node, products, narrowing, contents, place)
        if isinstance(match, Match):
            matches.append(match)
            taken.update(match.walk.nodes)
        elif node.op == "Softmax" or "no product takes" not in match.reason:
            misses.append(NearMiss(node.name, match.reason))
    return Plan(tuple(matches), tuple(misses))


def _match_at(
    node: Node, products: list[Node], narrowing: Narrowing, contents: Contents, place: dict[Node, int]
) -> Match | Miss:
    first: Miss | None = None
    for product in products:  # a bias may be a product too, as ALBERT's
        try:
            walk = _walked(product, contents, place)
            if walk.soft is node:
                return _match(walk, narrowing)
        except Miss as miss:
            first = first or miss
    return first or Miss("its scores are no product of queries and keys")


def _walked(node: Node, contents: Contents, place: dict[Node, int]) -> Walk:
    shapes = [contents.shape(value) for value in node.inputs]
    product = contractions.of_node(node, len(shapes[0]) if shapes[0] else None)
    if product is None or None in shapes:
        raise Miss("the product '%s' (%s) has open shapes or a form that is not known" % (node.name, node.op), node)
    product = _lettered(product)
    sizes: dict[str, int] = {}
    for operand, shape in zip((product.first, product.second), shapes):
        if any(sizes.setdefault(letter, size) != size for letter, size in zip(operand.axes, shape or ())):
            raise Miss("'%s' (%s) multiplies %s, which broadcasts" % (node.name, node.op, " by ".join(
                str(list(shape or ())) for shape in shapes)), node)  # fmt: skip
    walk = Walk(product, sizes, contents, place, RULES)
    walk.run()
    return walk


def _lettered(product: Contraction) -> Contraction:
    """A product in the letters of terms.py, with the keys in its last dimension; Miss if it is no such product."""
    axes, result = (product.first.axes, product.second.axes), product.result
    both, either = set(axes[0]) & set(axes[1]), set(axes[0]) ^ set(axes[1])
    names = dict(zip((letter for letter in result if letter in both), "bh"))
    names.update((letter, "d") for letter in both if letter not in result)
    names.update((letter, "t" if letter == result[-1] else "s") for letter in either)
    letters = sorted(names.values())
    if letters not in (["b", "d", "s", "t"], ["b", "d", "h", "s", "t"]) or len(names) != len(both | either):
        text = "'%s' (%s) is no product of queries [b, h, s, d] and keys [b, h, t, d]"
        raise Miss(text % (product.node.name, product.node.op), product.node)
    renamed = ["".join(names[letter] for letter in axis) for axis in (*axes, result)]
    operands = [Operand(operand.value, text) for operand, text in zip((product.first, product.second), renamed)]
    return Contraction(product.node, operands[0], operands[1], renamed[2])


# -- what a kernel is told ---------------------------------------------------------------------------------------------


def _match(walk: Walk, narrowing: Narrowing) -> Match:
    assert walk.soft is not None
    assert walk.scores is not None
    walk.include(_groups(walk))
    _require_closed(walk)
    factors = {result.name: result.factor for result in walk.results}
    arranged = arrangement.of_scores(walk.scores)
    if "dbias" in factors and not arranged.is_sole:
        raise Miss("its bias has a gradient, and masks before and behind it", walk.soft)
    forward = _spec(walk, arranged, walk.contents.shape if "dbias" in factors else narrowing.shape)
    if walk.d_out is None:
        return Match(walk.soft.name, forward, None, walk, narrowing, arranged)
    slopes = {factors[name] for name in ("dq", "dk") if name in factors}
    if not slopes and "dv" not in factors:
        raise Miss("its gradient ends before a product", walk.soft)
    if len(slopes) > 1:
        raise Miss("the gradients of its queries and keys have different factors", walk.soft)
    backward = dataclasses.replace(
        forward,
        kind=BACKWARD,
        slope=slopes.pop() / forward.kept_times if slopes else forward.scale * forward.after,
        bias_slope=factors["dbias"] / forward.kept_times if "dbias" in factors else None,
    )
    return Match(walk.soft.name, forward, backward, walk, narrowing, arranged)


def _spec(walk: Walk, arranged: Arrangement, shape_of: Callable[[Value], Shape]) -> Spec:
    assert walk.v is not None
    dtype, wide = _dtypes(walk)
    q, k, v = map(walk.shape_of, ("bhsd", "bhtd", "bhte"))
    dtypes = _bias_dtypes(walk, arranged)
    rate, times = _dropout(walk)
    hidden = [mask.value for mask in arranged.hidden]
    inside = [step.value if isinstance(step, Bias) else step.hidden.value for step in arranged.bias]
    return Spec(
        FORWARD, q, k, v, dtype, wide, arranged.scale,
        bias=_together(walk, inside, shape_of),
        bias_dtype="" if not inside else dtypes.pop() if len(dtypes) == len(inside) == 1 else "float32",
        rate=rate,
        mask=walk.drawn if rate and walk.drawn != walk.shape_of("bhst") else None,
        after=arranged.after,
        hidden=_together(walk, hidden, shape_of),
        fill=arranged.fill,
        bias_over=arranged.is_over,
        rounded=arranged.rounded,
        kept=times if rate else None,
    )  # fmt: skip


def _bias_dtypes(walk: Walk, arranged: Arrangement) -> set[str]:
    """The dtypes in which biases are added, and in which their gradient is summed up."""
    gradients = [result.operand.value.node for result in walk.results if result.name == "dbias"]
    return {repr(node.attrs["T"]) for node in gradients} or {step.dtype for step in arranged.bias}


def _dtypes(walk: Walk) -> tuple[str, str]:
    assert walk.soft is not None
    products = [node for node in walk.nodes if node.op in contractions.OPS]
    dtypes = {repr(node.attrs["T"]) for node in products}
    if len(dtypes) > 1:
        raise Miss("its products have dtypes %s" % " and ".join(sorted(dtypes)), walk.soft)
    dtype, wide = dtypes.pop(), repr(walk.soft.attrs["T"])
    if dtype not in DTYPES or wide not in (dtype, "float32"):
        raise Miss("its products are %s and its softmax is %s" % (dtype, wide), walk.soft)
    return dtype, wide


def _dropout(walk: Walk) -> tuple[float, float]:
    """(rate of dropout, what multiplies a kept probability); Miss if that is not divided by the share that is kept."""
    assert walk.weights is not None
    keep, times = walk.mask.keep if walk.mask and walk.weights.kept else 1.0, walk.weights.factor
    rate = round(1 - keep, 6)
    if not 0 < keep <= 1 or not (close(times * keep, 1.0, walk.dtype) if rate else times == 1):
        text = "its probabilities are multiplied by %.4g, expected %.4g: the share that is kept is %.4g"
        raise Miss(text % (times, 1 / keep if keep > 0 else 1, keep), walk.soft)
    return rate, times


def _together(walk: Walk, values: Sequence[Value], shape_of: Callable[[Value], Shape]) -> tuple[int, ...] | None:
    """The shape of values together, [b, h, s, t] with 1 where they are broadcast; None for no values."""
    sizes = dict.fromkeys("bhst", 1)
    for value in values:
        for letter, size in zip(reversed(walk.axes), reversed(shape_of(value) or ())):
            sizes[letter] = max(sizes[letter], size)
    return tuple(sizes[letter] for letter in "bhst") if values else None


# -- nobody else reads it ----------------------------------------------------------------------------------------------


def _groups(walk: Walk) -> list[Node]:
    """The tf.groups of its nodes alone, as gradients are gated: what waits for one may as well wait for the call."""
    waiting = dict.fromkeys(user for node in walk.nodes for user in node.output(CONTROL).users if user.op == "NoOp")
    fetched = {value.node for value in walk.soft.graph.results.values()} if walk.soft else set()
    groups = [
        node for node in waiting if node not in fetched and all(control in walk.nodes for control in node.controls)
    ]
    late = {user for node in groups for user in node.users() if user not in walk.nodes}
    if not late:
        return groups
    first = min(walk.place[node] for node in late)
    operands = filter(None, (walk.q, walk.k, walk.v, walk.d_out))
    steps = walk.scores.steps if walk.scores else ()
    values = [operand.value for operand in operands] + [
        step.value if isinstance(step, Bias) else step.hidden.value for step in steps
    ]
    early = [value.node for value in values] + ([walk.mask.draw] if walk.mask else [])
    behind = order.ancestors(early, lambda node: walk.place[node] > first)  # what is before all of them needs none
    return groups if late.isdisjoint(behind) else []  # else the call would wait for itself


def _require_closed(walk: Walk) -> None:
    """Miss if somebody else reads or waits for a value of attention, or one of its nodes waits for somebody."""
    results = {result.operand.value for result in walk.results}
    fetched = {value: name for name, value in walk.soft.graph.results.items()} if walk.soft else {}
    for node in walk.nodes:
        for value in [] if node.op == "NoOp" else [node.value, *node.outputs()]:
            if value not in results and value in fetched:
                raise Miss("'%s' is fetched" % value.node.name, node)
            others = () if value in results else value.users
            for user in others:
                if user not in walk.nodes and (value.index == CONTROL or user.op not in SHAPE_OPS):
                    verb = "waits for" if value.index == CONTROL else "reads"
                    raise Miss("'%s' (%s) %s '%s' too" % (user.name, user.op, verb, value.node.name), user)
        waits = [control for control in node.controls if control not in walk.nodes and any(control.sources())]
        if waits:
            raise Miss("'%s' (%s) waits for '%s'" % (node.name, node.op, waits[0].name), node)
