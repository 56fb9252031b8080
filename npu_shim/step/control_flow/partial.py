"""What of a graph is known, evaluated with numpy: loop conditions, before a loop is traced."""

from __future__ import annotations

from typing import Any, Callable, Mapping

import jax
import numpy as np

from npu_shim.step.frames import ENTERS, EXITS, MERGES, NEXTS, SWITCHES
from npu_shim.step.graph import Graph, Node, Source
from npu_shim.step.rules.table import Rule
from npu_shim.step.values import is_known

HANDS_ON = ENTERS | EXITS | NEXTS | SWITCHES | {"LoopCond", "Identity", "RefIdentity", "StopGradient"}
EXTREMES = {  # max(a, b) < min(c, d) is a < c and a < d and b < c and b < d
    "Less": ("Maximum", "Minimum"), "LessEqual": ("Maximum", "Minimum"),
    "Greater": ("Minimum", "Maximum"), "GreaterEqual": ("Minimum", "Maximum"),
}  # fmt: skip
OF_SHAPES = frozenset(["Shape", "Size", "Rank"])  # take nothing of their input but its shape
DECIDING = {"LogicalAnd": False, "LogicalOr": True}  # op -> the value of one input that decides


class _Unknown:
    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN = _Unknown()


class Partial:
    """Evaluates nodes of a graph as far as they are known.

    Args:
        nodes: name -> Node.
        given: function of a name, the value of a node that is not to be evaluated (a tuple for several outputs),
            UNKNOWN if it is not known, None for a node that is to be evaluated. Of a traced array the shape is known.
        rules: op -> row.
        functions: name -> Graph.
    """

    def __init__(
        self, nodes: Mapping[str, Node], given: Callable[[str], Any], rules: Mapping[str, Any],
        functions: Mapping[str, Graph],
    ) -> None:  # fmt: skip
        self._nodes, self._given, self._rules, self._functions = nodes, given, rules, functions
        self._values: dict[str, Any] = {}

    def __call__(self, source: Source) -> Any:
        """The value on an edge: known (numpy's), or UNKNOWN."""
        value = self._node(source[0])
        if type(value) is tuple:
            value = value[source[1]] if source[1] < len(value) else UNKNOWN
        return np.asarray(value) if is_known(value) else UNKNOWN

    def condition(self, source: Source) -> tuple[Any, bool]:
        """(The value of a condition, whether a part of it is known that could end its loop)."""
        value, parts = self(source), self._parts(source)
        known = [part for part in parts if part is not UNKNOWN]
        if value is UNKNOWN and not all(np.all(part) for part in known):
            value = np.asarray(False)
        return value, bool(known)

    def _parts(self, source: Source) -> list[Any]:
        """The values of what must all be true for a condition to be true."""
        node = self._nodes.get(self._behind(source)[0])
        if node is not None and node.op == "LogicalAnd":
            return [part for inner in node.inputs for part in self._parts(inner)]
        if node is not None and node.op in EXTREMES:
            one, other = (self._alternatives(*pair) for pair in zip(node.inputs, EXTREMES[node.op]))
            return [self._compared(node, a, b) for a in one for b in other]
        return [self(source)]

    def _alternatives(self, source: Source, extreme: str) -> list[Source]:
        """What a number is the largest (or smallest) of."""
        behind = self._behind(source)
        node = self._nodes.get(behind[0])
        if node is None or node.op != extreme or self(source) is not UNKNOWN:
            return [source]
        return [alternative for inner in node.inputs for alternative in self._alternatives(inner, extreme)]

    def _behind(self, source: Source) -> Source:
        while source[0] in self._nodes and self._nodes[source[0]].op in HANDS_ON:
            source = self._nodes[source[0]].inputs[0]
        return source

    def _compared(self, node: Node, one: Source, other: Source) -> Any:
        values = [self(one), self(other)]
        return UNKNOWN if any(value is UNKNOWN for value in values) else self._rules[node.op].apply(node.attrs, *values)

    def _node(self, name: str) -> Any:
        if name not in self._values:
            value = self._given(name)
            self._values[name] = UNKNOWN  # meanwhile: what needs itself is not known
            self._values[name] = self._computed(self._nodes[name]) if value is None and name in self._nodes else value
        return self._values[name]

    def _computed(self, node: Node) -> Any:
        if node.op in HANDS_ON:
            value = self(node.inputs[0])
            return (value, value) if node.op in SWITCHES else value
        if node.op in MERGES:
            return (self._merged(node), UNKNOWN)
        values = [self(source) for source in node.inputs]
        if node.op in OF_SHAPES and values[0] is UNKNOWN:
            values = [self._shaped(node.inputs[0])]
        if node.op in DECIDING:
            known = [bool(value) for value in values if value is not UNKNOWN and value.ndim == 0]
            if DECIDING[node.op] in known:
                return np.asarray(DECIDING[node.op])
        row = self._rules.get(node.op)
        if not isinstance(row, Rule) or any(value is UNKNOWN for value in values):
            return self._called(node, values)
        try:
            return row.apply(node.attrs, *values)
        except Exception:  # a rule that is not for these values says so in its own place
            return UNKNOWN

    def _merged(self, node: Node) -> Any:
        """What a Merge gives whose inputs are known whole numbers, and equal: a shape on both sides of a predicate."""
        first, *others = node.inputs
        value = self(first)
        if value is UNKNOWN or value.dtype.kind not in "biu":
            return UNKNOWN
        is_one = all(other is not UNKNOWN and np.array_equal(value, other) for other in map(self, others))
        return value if is_one else UNKNOWN

    def _shaped(self, source: Source) -> Any:
        """Zeros of the shape of a traced array; UNKNOWN for anything else."""
        name, output = self._behind(source)
        value = self._node(name)
        value = value[output] if type(value) is tuple and output < len(value) else value
        return np.broadcast_to(np.bool_(False), value.shape) if isinstance(value, jax.Array) else UNKNOWN

    def _called(self, node: Node, values: list[Any]) -> Any:
        callee = node.attrs.get("f")
        body = self._functions.get(node.op if callee is None else getattr(callee, "name", ""))
        return UNKNOWN if body is None else tuple(evaluated(body, values, self._rules, self._functions))


def deciding(nodes: Mapping[str, Node], condition: str, following: Mapping[str, Source]) -> set[str]:
    """The names of the loop variables that a condition depends on, in this iteration or through later ones.

    Args:
        nodes: of the loop.
        condition: name of a node.
        following: name of a loop variable -> where its next value comes from.
    """
    chosen, pending, seen = set[str](), [condition], {condition}
    while pending:
        name = pending.pop()
        if name in following:
            chosen.add(name)
            sources = [following[name][0]]
        else:
            sources = [source for source, _ in nodes[name].inputs] if name in nodes else []
        pending += [source for source in sources if source not in seen]
        seen.update(sources)
    return chosen


def evaluated(
    body: Graph, arguments: list[Any], rules: Mapping[str, Any], functions: Mapping[str, Graph]
) -> list[Any]:  # fmt: skip
    """What a function gives for these arguments, some of which are UNKNOWN: a list of known values and UNKNOWN."""
    partial = of_body(body, arguments, rules, functions)
    return [partial(source) for source in returned(body)]


def of_body(body: Graph, arguments: list[Any], rules: Mapping[str, Any], functions: Mapping[str, Graph]) -> Partial:
    """A function with these arguments, to be evaluated."""
    return Partial(body.nodes, dict(zip(body.arguments, arguments)).get, rules, functions)


def returned(body: Graph) -> list[Source]:
    """Where what a function returns comes from."""
    return [source for source in body.results.values() if source[1] >= 0]
