"""Which sums of a gradient's loop are made after it.

    sum = Exit of the loop variable   s = s + cast(MatMul(a, d, transpose_a)) + ...

Each step of the loop reads and writes the sum. After the loop, each step writes the rows of its factors and the product
reads them; what the forward pass keeps in a Stack anyway costs nothing. So a sum is made after the loop if

    bytes of the rows that a step has to keep  <=  bytes of the sum

and if all rows together take no more memory than the Stacks that the loop has: they are kept as long.
"""

from __future__ import annotations

import collections
from typing import Any, Callable, Iterable, NamedTuple

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.ir.graph import Node, Value
from npu_shim.xla.passes.control_flow.gradient_sinking.loops import Gradient, View

SUMS = ("Add", "AddN", "AddV2")
# dtype of factors -> dtype in which their products are summed
SUMMED_IN = {
    tf.bfloat16: tf.float32, tf.float16: tf.float32, tf.float32: tf.float32, tf.float64: tf.float64,
}  # fmt: skip


class Factor(NamedTuple):
    """A tensor of every step of a gradient's loop, kept for all steps.

    Attributes:
        kept: the value, in the gradient's loop.
        casts: dtypes to which it is cast, one after the other, before it is a factor.
        is_popped: whether one of the gradient's Stacks has it already.
    """

    kept: Value
    casts: tuple[Any, ...]
    is_popped: bool


class Sum(NamedTuple):
    """A sum over all steps of a gradient's loop.

    Attributes:
        exit: the node that returns it.
        start: the value that it starts from.
        terms: tuple of what is added in a step: two Factors [rows, m] and [rows, n], whose product is [m, n]; or one
            Factor [..., n], of which all but the last dimension is summed.
        gradient: Gradient.
    """

    exit: Node
    start: Value
    terms: tuple[tuple[Factor, ...], ...]
    gradient: Gradient

    def fresh(self) -> set[Value]:
        """Returns the values that the gradient's loop has to keep."""
        return {factor.kept for term in self.terms for factor in term if not factor.is_popped}


def plan(view: View) -> list[Sum]:
    """Returns the Sums of a graph that are made after their loops."""
    groups = collections.defaultdict(list)
    for node in view.graph:
        candidate = _sum(node, view) if node.op == "Exit" else None
        if candidate and _is_plain(candidate, view):
            groups[candidate.gradient.backward.condition].append(candidate)
    return [total for group in groups.values() for total in _that_pay(group, view)]


def _sum(node: Node, view: View) -> Sum | None:
    """The Sum that an Exit returns; None if it returns something else."""
    switch = node.inputs[0].node
    merge = switch.inputs[0].node
    if (switch.op, merge.op) != ("Switch", "Merge") or len(merge.inputs) != 2:
        return None
    enter, following = (value.node for value in merge.inputs)
    add = following.inputs[0].node
    if (enter.op, following.op) != ("Enter", "NextIteration") or add.op not in SUMS:
        return None
    used_by = (enter, {merge}), (merge, {switch}), (switch, {node, add}), (add, {following}), (following, {merge})
    if any(set(factor.users()) != users for factor, users in used_by):
        return None
    gradient = view.gradient(switch.inputs[1].node)
    added = [value for value in add.inputs if value is not switch.output(1)]
    if gradient is None or len(added) != len(add.inputs) - 1:
        return None
    terms = _terms(added, gradient, view)
    return Sum(node, enter.inputs[0], tuple(terms), gradient) if terms else None


def _terms(values: Iterable[Value], gradient: Gradient, view: View) -> list[Any]:
    """The terms that values are sums of; empty if there are others among them."""
    terms_found = []
    for value in values:
        terms = _terms_of(value.node, gradient, view) if len(view.readers(value.node)) == 1 else []
        if not terms:
            return []
        terms_found += terms
    return terms_found


def _terms_of(node: Node, gradient: Gradient, view: View) -> list[Any]:
    if node.op in SUMS or node.op == "Identity" or _widens(node):
        return _terms(node.inputs, gradient, view)
    is_product = node.op == "MatMul" and node.attrs.get("transpose_a") and not node.attrs.get("transpose_b")
    is_total = node.op == "BiasAddGrad" and node.attrs.get("data_format") != b"NCHW"
    if is_product or is_total:
        return [tuple(_factor(value, gradient) for value in node.inputs)]
    return []


def _widens(node: Node) -> bool:
    """Whether a node is a cast from a dtype to the one in which its products are summed."""
    if node.op != "Cast":
        return False
    before, after = (tf.as_dtype(node.attrs[name]) for name in ("SrcT", "DstT"))
    return before != after and bool(SUMMED_IN.get(before) == after)


def _factor(value: Value, gradient: Gradient) -> Factor:
    """The Factor that a value is, kept where it is popped, or else as narrow as it was."""
    popped = _behind(value, lambda node: node.op in ("Cast", "Identity"))
    if popped.kept.node in gradient.stacks:
        return popped._replace(is_popped=True)
    return _behind(value, lambda node: node.op == "Identity" or _widens(node))


def _behind(value: Value, passes: Callable[[Node], bool]) -> Factor:
    """The Factor behind the casts and Identities of a value that a function allows."""
    casts: tuple[Any, ...] = ()
    while passes(value.node):
        if value.node.op == "Cast":
            casts = (tf.as_dtype(value.node.attrs["DstT"]), *casts)
        value = value.node.inputs[0]
    return Factor(value, casts, is_popped=False)


def _is_plain(candidate: Sum, view: View) -> bool:
    """Whether all shapes are known and every term has the shape and dtype of the sum: none is broadcast or rounded."""
    total = view.tensor(candidate.exit.value)
    for term in candidate.terms:
        tensors = [view.tensor(factor.kept) for factor in term]
        shapes = [tensor.shape for tensor in (total, *tensors)]
        if not all(shape.rank and shape.is_fully_defined() for shape in shapes):
            return False
        dtype, *others = [factor.casts[-1] if factor.casts else tensor.dtype for factor, tensor in zip(term, tensors)]
        if set(others) - {dtype} or total.dtype not in (dtype, SUMMED_IN.get(dtype)) or dtype not in SUMMED_IN:
            return False
        if shapes[0].as_list() != [shape.as_list()[-1] for shape in shapes[1:]]:
            return False
    return True


def _that_pay(sums: Iterable[Sum], view: View) -> list[Sum]:
    """Those Sums of one gradient's loop that move fewer bytes after it, largest first."""
    chosen: list[Sum] = []
    kept: set[Value] = set()
    for candidate in sorted(sums, key=lambda total: (-_bytes([total.exit.value], view), total.exit.name)):
        new = candidate.fresh() - kept
        room = _bytes((pop.value for pop in candidate.gradient.stacks), view)
        if _bytes(new, view) <= _bytes([candidate.exit.value], view) and _bytes(kept | new, view) <= room:
            chosen.append(candidate)
            kept |= new
    return chosen


def _bytes(values: Iterable[Value], view: View) -> int:
    """Bytes of tensors in one step; those of unknown size count as none."""
    tensors = map(view.tensor, values)
    return sum((tensor.shape.num_elements() or 0) * tensor.dtype.size for tensor in tensors)
