"""Decides, for every type slot of a graph, the dtype it gets and why; and where casts stand. It changes nothing.

The rule of the mixed modes, in topological order, so that a decision depends only on what is upstream:

    white -> low.   black -> as written.
    gray and data-moving -> low when an input comes from a low slot and no *computed* input is float32.
    Sources (constants and what is computed from constants only, variable reads, feeds) are neutral: they decide
    nothing, and are cast to what their consumers have.

    e.g.  read -> MatMul -> BiasAdd(read) -> Exp -> Mul(const) -> MatMul
    gets  f32     f16       f16              f32    f32           f16
    with casts behind both reads, before Exp and before the last MatMul
"""

import enum
from dataclasses import dataclass
from typing import Dict, FrozenSet, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from .casts import CastEdit, Edits, find_edits
from .dtypes import FLOAT32, FLOATS, LOW
from .dtypes import name as dtype_name
from .errors import PlanError
from .graph_view import GraphView, Layout, Node, Slot, topological_order
from .kernel_table import KernelTable
from .op_table import Entry, OpTable
from .policy import Action, PrecisionPolicy


class Reason(enum.Enum):
    """Why a slot has the dtype it has. Every decision carries one."""

    NOT_FLOAT = "not float"
    WHITE = "white-listed"
    BLACK = "black-listed"
    CUBE = "matrix or convolution op in this mode"
    ALL = "this mode lowers every op"
    MODE = "this mode keeps it"
    RAISED = "this mode raises it to float32"
    NARROWED = "low-precision inputs, float32 arithmetic and result"
    FOLLOWS_LOW = "follows its low-precision producer"
    FOLLOWS_FLOAT32 = "follows its float32 producer"
    NO_LOW_PRODUCER = "no low-precision producer"
    ALREADY_LOW = "written in low precision"
    CAST = "Cast reads what its producer gives and writes what its author wrote"
    HARDWARE = "the profile's hardware runs it in low precision only"
    NO_KERNEL = "no low-precision kernel on its device"
    NO_LOW_TYPE = "the op definition admits no low precision"
    KEPT_ATTR = "kept by the op table"
    SCOPE = "kept by scope (_keep_dtype)"
    SOURCE = "a source: variables, constants, feeds and readers keep their dtype"
    FED = "fed from outside"
    REFERENCE = "reads or writes a reference variable"
    CONTROL_FLOW = "pinned because control flow is not rewritten yet"
    CONTAINER = "pinned because its container (TensorArray, Stack, TensorList) is not rewritten yet"
    FUNCTION = "pinned because function bodies are not rewritten yet"
    PINNED = "pinned by the op table"
    UNLISTED = "not in the op table"


CONTROL_FLOW_OPS = frozenset(
    prefix + op for prefix in ("", "Ref") for op in ("Switch", "Merge", "Enter", "Exit", "NextIteration")
) | {"LoopCond", "_SwitchN", "_XlaMerge"}

# what a float32 tensor means to a gray consumer
NEUTRAL, COMPUTED, LOWERED = 0, 1, 2


class Decision(NamedTuple):
    """The outcome for one slot. `because` is the slot (node name, slot) that caused it, where another slot did."""

    node: str
    op: str
    slot: Slot
    was: int
    becomes: int
    reason: Reason
    because: Optional[Tuple[str, Slot]]


@dataclass(frozen=True)
class Plan:
    """All decisions, as parallel lists over the slots (slot k of node n is entry `first[n] + k`), and the edits."""

    view: GraphView
    policy: PrecisionPolicy
    first: Sequence[int]
    becomes: Sequence[int]
    reasons: Sequence[Reason]
    because: Sequence[int]
    edits: Edits
    warnings: Tuple[str, ...] = ()
    unmatched: Tuple[str, ...] = ()

    @property
    def casts(self) -> Tuple[CastEdit, ...]:
        """The casts to insert, in the order of their names."""
        return self.edits.casts

    @property
    def changed(self) -> bool:
        """Whether applying this plan changes the graph."""
        return bool(self.edits.casts or self.edits.reconnections) or any(
            dtypes != node.dtypes for node, dtypes in self.node_dtypes()
        )

    def node_dtypes(self) -> Iterator[Tuple[Node, Tuple[int, ...]]]:
        """Every node, in the order of the view, with the dtypes that its slots get."""
        for node, first in zip(self.view.nodes, self.first):
            yield node, tuple(self.becomes[first : first + len(node.dtypes)])

    def decisions(self) -> Iterator[Decision]:
        """One decision a slot of a floating dtype, ordered by node name."""
        owner = [position for position, node in enumerate(self.view.nodes) for _ in node.dtypes]
        for position, node in sorted(enumerate(self.view.nodes), key=lambda pair: pair[1].name):
            for k, was in enumerate(node.dtypes):
                slot = self.first[position] + k
                if was in FLOATS:
                    cause = self.because[slot]
                    because = None if cause < 0 else self._slot_name(owner[cause], cause)
                    becomes, reason = self.becomes[slot], self.reasons[slot]
                    yield Decision(node.name, node.op, node.layout.slots[k], was, becomes, reason, because)

    def _slot_name(self, position: int, slot: int) -> Tuple[str, Slot]:
        node = self.view.nodes[position]
        return node.name, node.layout.slots[slot - self.first[position]]


def plan(
    view: GraphView,
    table: OpTable,
    policy: PrecisionPolicy,
    kernels: KernelTable,
    warnings: Tuple[str, ...] = (),
    unmatched: Tuple[str, ...] = (),
) -> Plan:
    """Plans the rewrite of a graph; a pure function of its arguments, and independent of the order of the nodes.

    Args:
        view: the graph.
        table: which list each op is on.
        policy: the precision mode.
        kernels: what runs where.
        warnings: what reading the user's options brought up, for the report.
        unmatched: the user's op names that stand for no op, for the report.

    Raises:
        PlanError: an op must stay in a dtype that the profile's hardware does not run it in.
    """
    state = _State(view, table, policy, kernels)
    for position in topological_order(view.nodes):
        node = view.nodes[position]
        state.constant[position] = _is_constant(state, node)
        if node.dtypes:
            _decide(state, position, node)
    edits = find_edits(view, state.first, state.becomes, policy.low, state.narrowed)
    return Plan(view, policy, state.first, state.becomes, state.reasons, state.because, edits, warnings, unmatched)


class _State:
    """The lists that planning fills, one entry a slot."""

    def __init__(self, view: GraphView, table: OpTable, policy: PrecisionPolicy, kernels: KernelTable) -> None:
        self.view, self.table, self.policy, self.kernels = view, table, policy, kernels
        self.first: List[int] = []
        self.becomes: List[int] = []
        for node in view.nodes:
            self.first.append(len(self.becomes))
            self.becomes.extend(node.dtypes)
        count = len(self.becomes)
        self.reasons: List[Reason] = [Reason.NOT_FLOAT] * count
        self.because: List[int] = [-1] * count
        self.meaning: List[int] = [COMPUTED] * count
        self.constant: List[bool] = [False] * len(view.nodes)  # a constant, or computed from constants only
        self.fed = frozenset(port.node for port in view.fed)
        self.narrowed: Dict[int, int] = {}  # node -> the slot whose inputs are rounded to the low dtype
        self.node_rules: Dict[Tuple[str, Layout], _Rule] = {}


class _Rule(NamedTuple):
    """What holds for all nodes of one op type and layout: a reason to leave it alone, or an action."""

    entry: Optional[Entry]
    pinned: Optional[Reason]
    action: Action
    reason: Reason
    governed: Tuple[Tuple[int, ...], ...]  # input numbers by slot


def _decide(state: _State, position: int, node: Node) -> None:
    """Decides the slots of one node, all of whose producers are decided."""
    if FLOATS.isdisjoint(node.dtypes):
        return
    rule = _rule(state, node)
    first = state.first[position]
    if rule.entry is not None and rule.entry.role == "cast":
        return _decide_cast(state, position, node, rule.entry)
    pinned = rule.pinned or _pin(state, position, node)
    if pinned is None:
        wanted = [_wanted(state, node, rule, k) for k in range(len(node.dtypes))]
        wanted = _with_kernel(state, node, wanted)
    else:
        wanted = [_Wanted(dtype, pinned, -1) for dtype in node.dtypes]
    neutral = pinned in (Reason.SOURCE, Reason.FED) or state.constant[position]
    for k, (dtype, reason, because) in enumerate(wanted):
        if node.dtypes[k] not in FLOATS:
            continue
        state.becomes[first + k] = dtype
        state.reasons[first + k] = reason
        state.because[first + k] = because
        if dtype in LOW:
            state.meaning[first + k] = LOWERED
        elif neutral or (_moves(rule) and _all_neutral(state, node, rule.governed[k])):
            state.meaning[first + k] = NEUTRAL
        if reason is Reason.NARROWED:
            state.narrowed[position] = k


def _is_constant(state: _State, node: Node) -> bool:
    """Whether a node's value is known before the graph runs; Grappler folds such expressions where it gets to them."""
    if node.op == "Const":
        return True
    entry = state.table.entries.get(node.op)
    if entry is None or entry.role not in ("computes", "moves", "cast") or node.controls or not node.inputs:
        return False
    return all(state.constant[port.node] and port not in state.view.fed for port in node.inputs)


def _rule(state: _State, node: Node) -> _Rule:
    key = (node.op, node.layout)
    rule = state.node_rules.get(key)
    if rule is None:
        entry = state.table.entries.get(node.op)
        action, reason = _action(state.policy, entry)
        governed: List[List[int]] = [[] for _ in node.layout.slots]
        for number, slot in enumerate(node.layout.inputs):
            if slot >= 0:
                governed[slot].append(number)
        pinned = _pin_by_table(state.view.functions, node.op, entry)
        rule = _Rule(entry, pinned, action, reason, tuple(map(tuple, governed)))
        state.node_rules[key] = rule
    return rule


def _pin_by_table(functions: FrozenSet[str], op: str, entry: Optional[Entry]) -> Optional[Reason]:
    if op in CONTROL_FLOW_OPS:
        return Reason.CONTROL_FLOW
    if entry is None:
        return Reason.FUNCTION if op in functions else Reason.UNLISTED
    return {"pinned": Reason.PINNED, "container": Reason.CONTAINER, "source": Reason.SOURCE}.get(entry.role)


def _action(policy: PrecisionPolicy, entry: Optional[Entry]) -> Tuple[Action, Reason]:
    """What the mode does to an op of this entry, and the reason that goes with it."""
    if entry is None:
        return Action.KEEP, Reason.UNLISTED
    if entry.cube and policy.cube is not None:
        action, listed = policy.cube, Reason.CUBE
    elif entry.role == "moves":
        action, listed = policy.gray, Reason.MODE
    else:
        action = {"white": policy.white, "gray": policy.gray, "black": policy.black}[entry.listed]
        mixed = policy.gray is Action.FOLLOW
        listed = {"white": Reason.WHITE, "black": Reason.BLACK}.get(entry.listed, Reason.MODE) if mixed else Reason.MODE
    if action is Action.LOWER and listed is Reason.MODE:
        listed = Reason.ALL
    return action, listed


def _pin(state: _State, position: int, node: Node) -> Optional[Reason]:
    """Why this one node keeps its dtypes whatever the mode says, or None."""
    if node.kept:
        return Reason.SCOPE
    if position in state.fed:
        return Reason.FED
    if node.layout.ref_inputs or node.layout.ref_outputs:
        return Reason.REFERENCE
    if any(port.port in state.view.nodes[port.node].layout.ref_outputs for port in node.inputs):
        # a cast of a reference would read the variable at a time of its own choosing
        return Reason.REFERENCE if node.layout.op != "Identity" else Reason.SOURCE
    return None


class _Wanted(NamedTuple):
    dtype: int
    reason: Reason
    because: int


def _wanted(state: _State, node: Node, rule: _Rule, k: int) -> _Wanted:
    """The dtype that slot k of a node should have by the mode, before asking whether a kernel runs it."""
    was = node.dtypes[k]
    policy, entry = state.policy, rule.entry
    assert entry is not None
    if was not in FLOATS:
        return _Wanted(was, Reason.NOT_FLOAT, -1)
    if node.layout.slots[k].attr in entry.keep:
        return _Wanted(was, Reason.KEPT_ATTR, -1)
    if was in LOW:
        if rule.action in (Action.RAISE, Action.NARROW):
            return _Wanted(FLOAT32, Reason.NARROWED if rule.action is Action.NARROW else Reason.RAISED, -1)
        return _Wanted(was, Reason.ALREADY_LOW, -1)
    if rule.action is Action.NARROW:
        return _Wanted(was, Reason.NARROWED, -1)
    if rule.action is Action.FOLLOW:
        wanted = _follow(state, node, rule.governed[k])
    elif rule.action is Action.LOWER:
        wanted = _Wanted(policy.low, rule.reason, -1)
    else:
        wanted = _keep(state, node, rule, was)
    admits = node.layout.admits[k]
    if wanted.dtype in LOW and admits is not None and wanted.dtype not in admits:
        return _Wanted(was, Reason.NO_LOW_TYPE, -1)
    return wanted


def _follow(state: _State, node: Node, inputs: Tuple[int, ...]) -> _Wanted:
    """Gray: low when an input is low and no computed input is float32."""
    cause = -1
    for number in inputs:
        slot, meaning = _producer(state, node, number)
        if meaning == COMPUTED:
            return _Wanted(FLOAT32, Reason.FOLLOWS_FLOAT32, slot)
        if meaning == LOWERED and cause < 0:
            cause = slot
    if cause < 0:
        return _Wanted(FLOAT32, Reason.NO_LOW_PRODUCER, -1)
    return _Wanted(state.policy.low, Reason.FOLLOWS_LOW, cause)


def _keep(state: _State, node: Node, rule: _Rule, was: int) -> _Wanted:
    """The mode leaves the op as written; what when the profile's hardware cannot run it so."""
    policy, entry = state.policy, rule.entry
    assert entry is not None
    if entry.dtypes is None or dtype_name(was) in entry.dtypes or policy.gray is not Action.KEEP:
        return _Wanted(was, rule.reason, -1)
    if policy.unsupported is Action.LOWER:
        return _Wanted(policy.low, Reason.HARDWARE, -1)
    raise PlanError(
        "op %s (node '%s') is %s, which profile '%s' runs in %s only, and precision mode '%s' forbids to change it; "
        "choose another mode, for example allow_mix_precision, or the profile 'gpu', where every op runs in both"
        % (node.op, node.name, dtype_name(was), state.table.profile, ", ".join(sorted(entry.dtypes)), policy.name)
    )


def _producer(state: _State, node: Node, number: int) -> Tuple[int, int]:
    """The slot that governs what data input `number` gets (-1 for a fixed dtype), and its meaning to a gray op."""
    port = node.inputs[number]
    slot = state.view.nodes[port.node].layout.outputs[port.port]
    if slot < 0:
        return -1, COMPUTED
    slot += state.first[port.node]
    return slot, state.meaning[slot]


def _moves(rule: _Rule) -> bool:
    return rule.entry is not None and rule.entry.role == "moves"


def _all_neutral(state: _State, node: Node, inputs: Tuple[int, ...]) -> bool:
    return all(_producer(state, node, number)[1] == NEUTRAL for number in inputs)


def _with_kernel(state: _State, node: Node, wanted: List[_Wanted]) -> List[_Wanted]:
    """Takes back what no kernel on the node's device runs."""
    dtypes = tuple(w.dtype for w in wanted)
    if dtypes == node.dtypes or state.kernels.runs(node.layout, node.device, dtypes):
        return wanted
    return [
        w if w.dtype == was else _Wanted(was, Reason.NO_KERNEL, w.because) for w, was in zip(wanted, node.dtypes)
    ]


def _decide_cast(state: _State, position: int, node: Node, entry: Entry) -> None:
    """An existing Cast: its input follows, its output stays; gray consumers look through it unless it is black."""
    first = state.first[position]
    source, target = 0, 1
    if node.layout.slots[0].attr != "SrcT":
        source, target = 1, 0
    producer, meaning = _producer(state, node, 0)
    if producer >= 0 and not _is_reference(state, node):
        state.becomes[first + source] = state.becomes[producer]
    state.reasons[first + source] = state.reasons[first + target] = Reason.CAST
    if node.dtypes[target] in LOW:
        state.meaning[first + target] = LOWERED
    elif node.dtypes[source] in FLOATS:
        state.meaning[first + target] = COMPUTED if entry.listed == "black" else meaning
    elif dtype_name(node.dtypes[source]) not in ("float64", "complex64", "complex128"):
        state.meaning[first + target] = NEUTRAL  # integers and booleans are data, not results to protect


def _is_reference(state: _State, node: Node) -> bool:
    port = node.inputs[0]
    return port.port in state.view.nodes[port.node].layout.ref_outputs


