"""Orders updates that set a variable to something made of its own value, where the script orders them in no way.

One AdamOptimizer whose minimize is called twice multiplies its beta powers once in each train_op, and a script may run
both in one run; others count their global step once for each variable, inside of the tf.cond that guards the update:

    Assign(v, Mul(v, b))   Assign(v, Mul(v, b))     becomes     the second Mul waits for the first Assign

A session runs each product just before its assignment, and so multiplies twice unless its threads meet. A compiled step
would read v once, at its beginning, and lose an update every time. Where a session loses one every time as well, since
both read v before either is written, both stay as they are:

    a:Square(v)  Assign(v, a + 1)  Assign(v, a + 2)         the read is the same node, or one that is merged with it
    Assign(v, v + Sum(MatMul(..)))  Assign(v, v + Sum(MatMul(..))), v a resource variable       it is read long before

The same holds for what is added to a variable or subtracted, if it is made of the variable's own value: the moving
averages of a batch normalization that is called twice. A session takes them one after the other, in either order, if
they are references; and from the same value, if they are resource variables and wait for products.

A reference may be read later than edges say: Grappler makes (v + 1) + x, where x takes long, (1 + x) + v. What an
assignment returns is its reference: who takes that reads the variable, behind the assignment.
"""

from __future__ import annotations

import collections
from typing import Any, Collection, Container, Iterable, Iterator, NamedTuple

from npu_shim.rewriter.analysis import branches, calls, order, writes
from npu_shim.rewriter.analysis.frames import frames
from npu_shim.rewriter.errors import PlanError
from npu_shim.rewriter.graph.walks import behind, reached
from npu_shim.rewriter.ir.graph import CONTROL, Graph, Node, Value
from npu_shim.rewriter.ir.module import Function, Module
from npu_shim.rewriter.tables.function_calls import LOOP
from npu_shim.xla.passes import inlined
from npu_shim.xla.passes.control_flow.if_conversion import COSTLY
from npu_shim.xla.passes.resources.late_reads import ASKS, MEMORY, PASSES_ON, VARIABLES

SCATTERS = frozenset(["ScatterAdd", "ScatterSub", "ScatterUpdate"])
# what sets a variable, or changes it by, what its other inputs are; an optimizer's gradients are behind products
ASSIGNS = frozenset([
    "Assign", "AssignAdd", "AssignSub", "AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp",
    *SCATTERS, *("Resource" + op for op in SCATTERS),
])  # fmt: skip
HANDS_ON = frozenset([*PASSES_ON, *MEMORY])  # on the way back from who takes a variable
MOVED = frozenset(
    ["Add", "AddV2", "AddN", "Sub", "Mul", "RealDiv", "Neg"]
)  # for what Grappler computes in another order
READS = ("ReadVariableOp", "ResourceGather", "ResourceGatherNd")


class Update(NamedTuple):
    """A node that writes to a variable.

    Attributes:
        node: it.
        reads: what reads the variable for the value that it sets it to; none for one that adds, or sets it to others.
        chain: what is between these and it, both included.
    """

    node: Node
    reads: tuple[Node, ...]
    chain: frozenset[Node]

    @property
    def begins(self) -> tuple[Node, ...]:
        """What must not run between another update's reads and its end: its reads, else itself."""
        return self.reads or (self.node,)


def sequence(module: Module, context: Any = None) -> None:
    """Has each such update of a variable follow the one before it, in the order of the graph.

    Args:
        module: a step's, with v1 control flow and the script's own reads.
        context: not used.

    Raises:
        PlanError: one is in a conditional or a loop that the other is not in; the error names both.
    """
    for graph in module.graphs_with(ASSIGNS.__contains__):
        several = _several(graph)
        if _merge(node for updates in several.values() for update in updates for node in update.reads):
            several = _several(graph)
        if several:
            _sequence(graph, several)


def _several(graph: Graph) -> dict[Node, list[Update]]:
    return {variable: updates for variable, updates in _updates(graph).items() if len(updates) > 1}


def _merge(reads: Iterable[Node]) -> bool:
    """Makes one of reads that make the same of the same, as a session does; whether there were any."""
    kept: dict[Any, Node] = {}
    equals = {node: kept.setdefault(_key(node), node) for node in dict.fromkeys(reads)}
    gone = {node: first for node, first in equals.items() if node is not first}
    for node, first in gone.items():
        for value in node.outputs():
            value.replace_by(first.output(value.index))
        node.output(CONTROL).replace_by(first.output(CONTROL))
        node.graph.remove([node])
    return bool(gone)


def _sequence(graph: Graph, several: dict[Node, list[Update]]) -> None:
    precedence = _Precedence(graph, {node for ups in several.values() for up in ups for node in (up.node, *up.begins)})
    for variable, updates in several.items():
        for number, second in enumerate(updates):
            for first in updates[:number][::-1]:
                if first.reads or second.reads:
                    _order(variable, first, second, precedence)


def _updates(graph: Graph) -> dict[Node, list[Update]]:
    """Variable -> what writes to it, of those that are set to something made of their own value."""
    set_to = collections.defaultdict(list)
    for node in graph:
        if node.op in ASSIGNS:
            variable = _variable(node.inputs[0])
            if variable is not None:
                set_to[variable].append(node)
    updates = {}
    for variable, nodes in set_to.items():
        writers = _writers(variable)
        if len(writers) > 1:
            own = [
                _own(node, variable, writers) if node in nodes else Update(node, (), frozenset()) for node in writers
            ]
            updates[variable] = own if any(update.reads for update in own) else []
    return updates


def _variable(value: Value) -> Node | None:
    """The variable that a tensor is, or whose memory or handle it is; None for another one."""
    node: Node = behind(value, HANDS_ON | ASSIGNS).node
    is_argument = isinstance(node.graph, Function) and node in node.graph.arguments
    return node if is_argument or node.op in (*VARIABLES, "VarHandleOp") else None


def _writers(variable: Node) -> list[Node]:
    """What writes to a variable, in the order of the graph."""
    is_handle = variable.op not in VARIABLES
    writing = set()
    passes = lambda node: node is variable or _passes_on(node, variable)  # noqa: E731
    for node in reached([variable], lambda node: node.users() if passes(node) else ()):
        # what an assignment returns is a reference for those alone that take it as their first input
        sources = [v.node for n, v in enumerate(node.inputs) if passes(v.node) and not (n and v.node.op in ASSIGNS)]
        if is_handle:
            is_writer = any(writes.writes(node, source) for source in sources)
        else:
            is_writer = bool(sources) and node.op not in (*PASSES_ON, *ASKS) and _takes_references(node)
        if is_writer:
            writing.add(node)
    return [node for node in variable.graph if node in writing] if len(writing) > 1 else list(writing)


def _passes_on(node: Node, variable: Node) -> bool:
    """Whether a node's output is the handle or the reference that it takes, which is a variable's."""
    if variable.op not in VARIABLES:
        return node.op in writes.PASSES_ON
    return node.op in PASSES_ON or (node.op in ASSIGNS and _variable(node.inputs[0]) is variable)


def _takes_references(node: Node) -> bool:
    definition = node.graph.module.definition(node.op)
    return definition is not None and any(argument.is_ref for argument in definition.inputs)


def _own(node: Node, variable: Node, writers: Container[Node]) -> Update:
    """The Update that an assignment is.

    A product does not belong to its chain, since what it makes is no value of v; another update is one by itself.
    """
    ends = lambda taken: taken in writers or _is_heavy(taken)  # noqa: E731
    sources = reached([v.node for v in node.inputs[1:]], lambda n: () if ends(n) else [v.node for v in n.inputs])
    chain = [source for source in sources if source not in writers]
    return Update(node, tuple(taken for taken in chain if _reads(taken, variable)), frozenset([*chain, node]))


def _reads(node: Node, variable: Node) -> bool:
    """Whether a node reads a variable: a reference's memory is read by who computes with it."""
    if variable.op not in VARIABLES and not calls.functions(node):
        return node.op in READS and _variable(node.inputs[0]) is variable
    return node.op not in HANDS_ON and any(_variable(value) is variable for value in node.inputs)


def _is_heavy(node: Node) -> bool:
    """Whether a node takes long: a product, a loop, a call of a function that has one."""
    return any(map(_is_costly, [node, *_nodes_called(node)]))


def _is_costly(node: Node) -> bool:
    return any(part in node.op for part in COSTLY) or calls.kind(node) == LOOP


def _nodes_called(node: Node) -> Iterator[Node]:
    """The nodes of the functions that a node calls, and of those that these call."""
    called = reached(
        calls.functions(node), lambda body: [callee for inner in body for callee in calls.functions(inner)]
    )
    return (inner for body in called for inner in inlined.nodes_of(body))


def _ends(graph: Graph) -> dict[Node, list[Node]]:
    """Exit of a loop -> the NextIterations that have run before it, if the loop runs at all."""
    ends = {}
    for node in graph:
        if node.op in ("Exit", "RefExit"):
            inside = reached([node], lambda node: () if node.op in ("Enter", "RefEnter") else node.sources())
            ends[node] = [source for source in inside if source.op in order.NEXT]
    return ends


class _Precedence:
    """Which of some nodes run before which, as edges say it; and before which products."""

    def __init__(self, graph: Graph, nodes: Collection[Node]) -> None:
        self.inside, self.frames = branches.branches(graph), frames(graph)
        self._own: dict[Node, int] = {}
        for node in graph:
            if node in nodes or _is_heavy(node):
                self._own[node] = 1 << len(self._own)
        self._heavy = sum(bit for node, bit in self._own.items() if _is_heavy(node))
        before = self._propagated(graph, _ends(graph) if any(map(self.frames.get, self._own)) else {})
        self._before = {node: before.get(node, 0) for node in self._own}

    def _propagated(self, graph: Graph, ends: dict[Node, list[Node]]) -> dict[Node, int]:
        """Node -> bits of what runs before it; `ends` are what else the Exits of loops wait for."""
        before: dict[Node, int] = {}
        while True:
            known = dict(before)
            for node in order.topological(graph):
                sources = [source for source in node.sources() if source.op not in order.NEXT]
                before[node] = 0
                for source in (*sources, *ends.get(node, ())):
                    before[node] |= before.get(source, 0) | self._own.get(source, 0)
            if not ends or before == known:  # a loop's last iteration stands behind its Exits in this order
                return before

    def is_before(self, first: Node, second: Node) -> bool:
        """Whether a node waits for another one."""
        return bool(self._own[first] & self._before[second])

    def surely(self, first: Node, second: Node) -> bool:
        """Whether a session runs one node before another: this waits for it, or for products, and the one for none."""
        if self.is_before(first, second):
            return True
        if first.op in MOVED and any(user.op in MOVED for user in first.users()):
            return False
        awaited, others = (self._before[node] & self._heavy for node in (first, second))
        return not awaited & ~others and bool(others & ~awaited)

    def add(self, first: Node, second: Node) -> None:
        """Records that a node waits for another one."""
        more = self._before[first] | self._own[first]
        for node in self._before:
            if node is second or self.is_before(second, node):
                self._before[node] |= more

    def can_wait(self, second: Node, first: Node) -> bool:
        """Whether a node can be given an edge to another one: it runs in no iteration and branch without it."""
        there, needed = (self.inside.get(node, frozenset()) for node in (second, first))
        in_reach = needed <= there and self.frames.get(first) == self.frames.get(second)
        return in_reach and not self.is_before(second, first)


def _order(variable: Node, first: Update, second: Update, precedence: _Precedence) -> None:
    """Has an update wait for another one, unless one of them follows the other, excludes it, or surely overlaps it."""
    if _excludes(*(precedence.inside.get(update.node, frozenset()) for update in (first, second))):
        return
    ways = [(first, second, _open(first, second, precedence)), (second, first, _open(second, first, precedence))]
    for earlier, _, begins in ways:
        if begins and all(precedence.is_before(earlier.node, node) for node in begins):
            return
    if not any(begins for *_, begins in ways):
        return
    for earlier, later, begins in ways:
        if begins and all(precedence.can_wait(node, earlier.node) for node in begins):
            for node in begins:
                _wait(variable, node, earlier.node, later)
                precedence.add(earlier.node, node)
            return
    raise PlanError(
        "variable '%s' is set from its own value by '%s' and by '%s', in no order, and one of them is in a "
        "conditional or a loop: run them one after another, or the step in a session"
        % (variable.name, *sorted([first.node.name, second.node.name]))
    )


def _open(earlier: Update, later: Update, precedence: _Precedence) -> list[Node]:
    """Where a later update begins, as far as that is not certainly before an earlier one ends."""
    return [n for n in later.begins if n not in earlier.reads and not precedence.surely(n, earlier.node)]


def _key(node: Node) -> Any:
    """Equal for nodes that a session merges, since they make the same of the same."""
    has_state = any(inlined.is_stateful(inner.op) and not calls.kind(inner) for inner in _nodes_called(node))
    if node.op in READS or node.op in ASSIGNS or has_state:
        return node
    return node.op, tuple(map(_content, node.inputs)), node.controls, node.device, repr(node.attrs.items())


def _content(value: Value) -> Any:
    is_free = value.node.op == "Const" and not value.node.controls  # one that waits orders who reads it
    constant = value.node.attrs["value"] if is_free else None
    return value if constant is None else (constant.dtype, constant.dims, constant.numbers())


def _wait(variable: Node, node: Node, first: Node, later: Update) -> None:
    """Has what begins an update wait for another one; who reads the variable for something else too does not wait."""
    others = [user for user in node.users() if user not in later.chain]
    if node.op not in READS or not others:
        node.set_controls([*node.controls, first])
        return
    graph, attrs = node.graph, dict(node.attrs.items())
    name, controls = graph.free_name(node.name + "/again"), [*node.controls, first]
    again = graph.add(name, node.op, node.inputs, controls, attrs, node.device, before=node)
    node.value.replace_by(again.value, [user for user in node.users() if user in later.chain])


def _excludes(one: Any, other: Any) -> bool:
    """Whether two nodes are on different sides of a conditional."""
    sides = dict(one)
    return any(decides in sides and sides[decides] != side for decides, side in other)
