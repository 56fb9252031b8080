"""Decides, for every type slot of a graph, the dtype it gets and why; and where casts stand. It changes nothing.

The rule of the mixed modes, in topological order, so that a decision depends only on what is upstream:

    white -> low.   black -> as written.
    gray and data-moving -> low when an input comes from a low slot and no *computed* input is float32.
    Sources (constants and what is computed from constants only, variable reads, feeds) are neutral: they decide
    nothing, and are cast to their consumers' dtypes. A black-listed Sum that sums nothing counts as data-moving.

    e.g.  read -> MatMul -> BiasAdd(read) -> Exp -> Mul(const) -> MatMul
    gets  f32     f16       f16              f32    f32           f16
    with casts behind both reads, before Exp and before the last MatMul
"""

from dataclasses import replace
from typing import Callable, Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from ..errors import PlanError, raise_first
from ..graph.emulation import Fixed, Running, emulate, gives_rounded
from ..graph.facts import NO_FACTS, Facts
from ..graph.graph_view import GraphView, Node, topological_order
from ..graph.kernel_table import KernelTable
from ..tables.dtypes import FLOAT32, FLOATS, LOW
from ..tables.dtypes import name as dtype_name
from ..tables.op_table import Entry, OpTable
from ..tables.policy import Action, PrecisionPolicy
from .casts import INTEGERS, RENAMED, Decided, find_edits
from .clamping import clamped
from .decisions import Plan, Reason
from .grappler.plan import plan as by_neighbours
from .loops import decide_tied, settle_ties
from .overrides import NO_OVERRIDES, Override, Overrides, asked_of_slot, require_none, warnings_of
from .placement import move_casts
from .state import COMPUTED, LIKE, LOWERED, NEUTRAL, State, producer, set_meaning, strongest
from .worklist import Worklist


def plan(
    view: GraphView,
    table: OpTable,
    policy: PrecisionPolicy,
    kernels: KernelTable,
    overrides: Overrides = NO_OVERRIDES,
    warnings: Tuple[str, ...] = (),
    unmatched: Tuple[str, ...] = (),
    facts: Facts = NO_FACTS,
) -> Plan:
    """Plans the rewrite of a graph by the rule of its op table.

    A pure function of its arguments, and independent of the order of the nodes.

    Args:
        view: the graph.
        table: which list each op is on.
        policy: the precision mode.
        kernels: what runs where.
        overrides: the user's requests for single ops; without effect in a mode that must keep every dtype.
        warnings: raised while the user's options were read, for the report.
        unmatched: the user's op names that stand for no op, for the report.
        facts: static properties of tensors.

    Raises:
        PlanError: an op must stay in a dtype that the profile's hardware does not run it in, or an override asks for
            what an op cannot do; of several nodes the first by name is reported.
    """
    if policy.gray is Action.KEEP and policy.unsupported is Action.KEEP:
        overrides = NO_OVERRIDES
    planned = RULES[table.rule](view, table, policy, kernels, overrides, facts)
    return replace(planned, warnings=warnings + planned.warnings, unmatched=unmatched)


def _by_producers(
    view: GraphView, table: OpTable, policy: PrecisionPolicy, kernels: KernelTable, overrides: Overrides, facts: Facts
) -> Plan:
    """The rule of this file: a slot's dtype depends on what is upstream of it."""
    state = State(view, table, policy, kernels, facts)
    rules = _rules_of_nodes(state)
    order = topological_order(view.nodes, state.consumers)

    _mark_constants(state)

    problems: Dict[str, PlanError] = {}

    def decide(position: int) -> None:
        try:
            _decide(state, rules[position], overrides, position)
        except PlanError as problem:
            problems.setdefault(view.nodes[position].name, problem)

    settled = _keep_by_table(state, rules) if overrides is NO_OVERRIDES else set()
    settle_ties(state, Worklist(state, [position for position in order if position not in settled], decide))
    raise_first(problems)
    move_casts(state, order)
    running = Running(state.becomes, {})
    if policy.changes:
        running = emulate(view, state.first, state.becomes, kernels, _fixed_nodes(state), state.consumers)
    decided = Decided(view, state.first, state.becomes, running, state.narrowed)
    edits = clamped(find_edits(decided, state.consumers, state.readings), view, facts)
    told = warnings_of(state.left)
    return Plan(view, policy, state.first, state.becomes, state.reasons, state.because, running, edits, told)


# the reasons for which a node keeps its dtypes unless a user asks for others
OVERRIDDEN = (None, Reason.SCOPE, Reason.LOOP_DECIDES, Reason.UNSCALES, Reason.BEYOND, Reason.BOUND)
# the rules that an op table may ask for, see `op_table.OpTable.rule`
RULES: Mapping[str, Callable[..., Plan]] = {"producers": _by_producers, "neighbours": by_neighbours}


def _fixed_nodes(state: State) -> Fixed:
    """The nodes that must run in the decided dtype, and those that change only together."""
    unchanged = [[position for position, _ in tie.members] for tie in state.ties if tie.unchanged]
    return Fixed(
        state.pins.keys() | state.tie_of.keys(),
        [positions for positions in unchanged if state.pins.keys().isdisjoint(positions)],
    )


Wanted = Tuple[int, Reason, int]  # a dtype, why, and the slot that caused it or -1


class _Rule(NamedTuple):
    """What holds for all nodes of one op type, layout and dtypes: a reason to leave them alone, or an action."""

    entry: Optional[Entry]
    moves: bool
    pinned: Optional[Reason]
    action: Action
    reason: Reason
    floats: Tuple[int, ...]  # slots with a dtype that a plan may change
    governed: Tuple[Tuple[int, ...], ...]  # input numbers by slot
    settled: Tuple[Optional[Wanted], ...]  # by slot: what the mode makes of it where that depends on no other node


def _decide(state: State, rule: _Rule, overrides: Overrides, position: int) -> None:
    """Decides the slots of one node, all of whose producers are decided."""
    node = state.view.nodes[position]
    if node.op == "Sum" and _only_moves(state, rule, position, node):
        rule = _rule(state, node, _MOVES)
    if overrides is not NO_OVERRIDES and _restores(state, node):
        overrides = NO_OVERRIDES
    override = None if overrides is NO_OVERRIDES else overrides.of(node)
    if rule.entry is not None and rule.entry.role == "cast":
        require_none(overrides, node, Reason.CAST, state.left)
        return _decide_cast(state, position, node, rule.entry)
    if override is not None and state.is_tied(position):
        require_none(overrides, node, Reason.TIED, state.left)
        override = None if node.name in state.left else override
    if position in state.tie_of:
        return decide_tied(state, position, node)
    pinned = rule.pinned or state.pins.get(position)
    if override is not None and pinned in OVERRIDDEN:
        wanted = _dtypes_by_override(state, node, rule, override)
        pinned = None
    elif pinned is None:
        wanted = _with_kernel(state, node, _dtypes_by_mode(state, node, rule))
        if node.op == "IdentityN" and state.policy.gray is Action.LOWER:
            wanted = _as_kept(state, node, rule, wanted)
    else:
        require_none(overrides, node, pinned, state.left)
        wanted = [(dtype, pinned, -1) for dtype in node.dtypes]
    neutral = pinned in (Reason.SOURCE, Reason.FED) or state.constant[position]
    _record(state, rule, position, wanted, neutral)


def _as_kept(state: State, node: Node, rule: _Rule, wanted: Sequence[Wanted]) -> List[Wanted]:
    """Lowers no slot of a node that hands on what a scope or a counter keeps: it may stand for a call's results."""
    wanted = list(wanted)
    for k in rule.floats:
        given = [producer(state, node, number)[0] for number in rule.governed[k]]
        if given and given[0] >= 0 and state.reasons[given[0]] in (Reason.SCOPE, Reason.LOOP_ADDS, Reason.LOOP_DECIDES):
            wanted[k] = node.dtypes[k], state.reasons[given[0]], given[0]
    return wanted


def _keep_by_table(state: State, rules: Mapping[int, _Rule]) -> Set[int]:
    """Decides the nodes that the op table pins, such as sources: no producer matters; returns their positions."""
    settled: Set[int] = set()
    for kind in state.view.kinds():
        rule, dtypes = rules[kind[0]], state.view.nodes[kind[0]].dtypes
        if rule.pinned is None or not rule.floats:
            continue
        wanted = [(dtype, rule.pinned, -1) for dtype in dtypes]
        untied = [position for position in kind if position not in state.tie_of]
        for position in untied:
            _record(state, rule, position, wanted, rule.pinned is Reason.SOURCE or state.constant[position])
        settled.update(untied)
    return settled


def _restores(state: State, node: Node) -> bool:
    """Whether a node restores the name and dtypes of a fetched one, which an earlier rewrite lowered and renamed."""
    behind = [state.view.nodes[port.node] for port in node.inputs] if node.op in ("Cast", "IdentityN") else []
    behind += [state.view.nodes[port.node] for reader in behind if reader.op == "Cast" for port in reader.inputs]
    return any(reader.name.startswith(node.name + RENAMED) for reader in behind)


def _record(state: State, rule: _Rule, position: int, wanted: Sequence[Wanted], neutral: bool) -> None:
    """Records the dtypes of a node's slots, and what its values mean to their readers."""
    node = state.view.nodes[position]
    first = state.first[position]
    for k in rule.floats:
        slot, (dtype, reason, because) = first + k, wanted[k]
        state.becomes[slot] = dtype
        state.reasons[slot] = reason
        state.because[slot] = because
        if dtype in LOW or (reason is Reason.ALREADY_ROUNDED and gives_rounded(node, k)):
            meaning = NEUTRAL if node.moved else LOWERED
        elif neutral or (rule.moves and _all_neutral(state, node, rule.governed[k])):
            meaning = NEUTRAL
        else:
            meaning = COMPUTED
        set_meaning(state, slot, meaning)
        if reason is Reason.NARROWED:
            state.narrowed[position] = k, state.policy.low


_MOVES = Entry("Sum", role="moves")


def _only_moves(state: State, rule: _Rule, position: int, node: Node) -> bool:
    """Whether a black-listed Sum of low values sums nothing: the gradient of a broadcast that broadcast nothing."""
    follows = state.policy.gray is Action.FOLLOW and rule.reason is Reason.BLACK
    if not follows or rule.entry is None or rule.entry.asked or producer(state, node, 0)[1] != LOWERED:
        return False
    return state.facts.sums_nothing(position)


def _mark_constants(state: State) -> None:
    """Finds what is known before the graph runs; Grappler folds such expressions where it gets to them."""
    constant, nodes, fed = state.constant, state.view.nodes, state.view.fed
    foldable = {op for op, entry in state.table.entries.items() if entry.role in ("computes", "moves", "cast")}
    pending = state.view.of_ops(["Const"])
    for position in pending:  # grows while it is read
        constant[position] = True
        for reader in state.consumers[position]:
            node = nodes[reader]
            if constant[reader] or node.controls or node.op not in foldable:
                continue
            if all(constant[port.node] and port not in fed for port in node.inputs):
                constant[reader] = True
                pending.append(reader)


def _rules_of_nodes(state: State) -> Dict[int, _Rule]:
    """The rule of every node, by its position."""
    rules: Dict[int, _Rule] = {}
    for kind in state.view.kinds():
        node = state.view.nodes[kind[0]]
        rules.update(dict.fromkeys(kind, _rule(state, node, state.table.entries.get(node.op))))
    return rules


def _rule(state: State, node: Node, entry: Optional[Entry]) -> _Rule:
    action, reason = _action(state.policy, entry)
    governed: List[List[int]] = [[] for _ in node.layout.slots]
    for number, slot in enumerate(node.layout.inputs):
        if slot >= 0 and node.op not in LIKE:
            governed[slot].append(number)
    pinned = _pin_by_table(state.view.functions, node.op, entry)
    moves = entry is not None and entry.role == "moves"
    floats = tuple([k for k, dtype in enumerate(node.dtypes) if dtype in FLOATS])
    settled = tuple([_settled(state.policy, node, entry, action, reason, k) for k in range(len(node.dtypes))])
    return _Rule(entry, moves, pinned, action, reason, floats, tuple(map(tuple, governed)), settled)


def _pin_by_table(functions: FrozenSet[str], op: str, entry: Optional[Entry]) -> Optional[Reason]:
    if entry is None:
        return Reason.FUNCTION if op in functions else Reason.UNLISTED
    return {"pinned": Reason.PINNED, "container": Reason.CONTAINER, "source": Reason.SOURCE}.get(entry.role)


def _action(policy: PrecisionPolicy, entry: Optional[Entry]) -> Tuple[Action, Reason]:
    """The mode's action for an op of this entry, with its reason."""
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


def _settled(
    policy: PrecisionPolicy, node: Node, entry: Optional[Entry], action: Action, reason: Reason, k: int
) -> Optional[Wanted]:
    """What the mode makes of slot k of all nodes like this one, None where that depends on the node."""
    was = node.dtypes[k]
    if was not in FLOATS:
        return (was, Reason.NOT_FLOAT, -1)
    if entry is None:
        return None
    if node.layout.slots[k].attr in entry.keep:
        return (was, Reason.KEPT_ATTR, -1)
    if was in LOW:
        if action in (Action.RAISE, Action.NARROW):
            return (FLOAT32, Reason.NARROWED if action is Action.NARROW else Reason.RAISED, -1)
        return (was, Reason.ALREADY_LOW, -1)
    if action is Action.NARROW:
        return (was, Reason.NARROWED, -1)
    return _admitted(node, k, (policy.low, reason, -1)) if action is Action.LOWER else None


def _dtypes_by_mode(state: State, node: Node, rule: _Rule) -> List[Wanted]:
    """The dtypes of a node's slots by the mode, before any check for a kernel."""
    if node.asked in FLOATS:
        return [_dtype_by_mode(state, node, rule, k) for k in range(len(node.dtypes))]
    return [settled or _by_other_nodes(state, node, rule, k) for k, settled in enumerate(rule.settled)]


def _dtype_by_mode(state: State, node: Node, rule: _Rule, k: int) -> Wanted:
    """The dtype of slot k of a node by the mode, before any check for a kernel."""
    assert rule.entry is not None
    if node.asked in FLOATS and k in rule.floats and rule.entry.role in ("computes", "moves") and state.policy.changes:
        return (node.asked, Reason.ASKED, -1)
    return rule.settled[k] or _by_other_nodes(state, node, rule, k)


def _by_other_nodes(state: State, node: Node, rule: _Rule, k: int) -> Wanted:
    """The dtype of slot k of a node whose producers or device the mode asks about."""
    if rule.action is Action.FOLLOW:
        wanted = _follow_producers(state, node, rule.governed[k])
    else:
        wanted = _keep_as_written(state, node, rule, node.dtypes[k])
    return _admitted(node, k, wanted)


def _admitted(node: Node, k: int, wanted: Wanted) -> Wanted:
    """What is wanted of slot k, or its own dtype where the op does not have the wanted one."""
    admits = node.layout.admits[k]
    if admits is not None and wanted[0] in LOW and wanted[0] not in admits:
        return (node.dtypes[k], Reason.NO_LOW_TYPE, -1)
    return wanted


def _dtypes_by_override(state: State, node: Node, rule: _Rule, override: Override) -> List[Wanted]:
    """The dtypes of a node under an override; the mode decides the slots that it leaves unspecified."""
    wanted = []
    for k, was in enumerate(node.dtypes):
        asked = asked_of_slot(override, node, k)
        if asked is None:
            wanted.append(_dtype_by_mode(state, node, rule, k))
        elif asked[1]:
            wanted.append((FLOAT32, Reason.NARROWED, -1))
        else:
            wanted.append((asked[0], Reason.CUSTOM if was in FLOATS else Reason.NOT_FLOAT, -1))
    if not state.kernels.runs(node.layout, node.device, tuple([dtype for dtype, _, _ in wanted])):
        dtypes = ", ".join(dtype_name(dtype) for dtype, _, _ in wanted)
        raise PlanError("%s: no kernel runs '%s' (op %s) in %s" % (override.source, node.name, node.op, dtypes))
    return wanted


def _follow_producers(state: State, node: Node, inputs: Tuple[int, ...]) -> Wanted:
    """Gray: low when an input is low and no computed input is float32."""
    if len(inputs) == 1:
        cause, meaning = producer(state, node, inputs[0])
    else:
        meaning, cause = strongest(state, [producer(state, node, number) for number in inputs])
    if meaning == COMPUTED:
        return (FLOAT32, Reason.FOLLOWS_FLOAT32, cause)
    if meaning == NEUTRAL:
        return (FLOAT32, Reason.NO_LOW_PRODUCER, -1)
    return (state.policy.low, Reason.FOLLOWS_LOW, cause)


def _keep_as_written(state: State, node: Node, rule: _Rule, was: int) -> Wanted:
    """Keeps an op as written, unless the profile's hardware cannot run it so: then the policy decides."""
    policy, entry = state.policy, rule.entry
    assert entry is not None
    if entry.dtypes is None or dtype_name(was) in entry.dtypes or policy.gray is not Action.KEEP:
        return (was, rule.reason, -1)
    if policy.unsupported is Action.LOWER:
        return (policy.low, Reason.HARDWARE, -1)
    raise PlanError(
        "op %s (node '%s') is %s, which profile '%s' runs in %s only, and precision mode '%s' forbids to change it; "
        "choose another mode, for example allow_mix_precision, or the profile 'gpu', where every op runs in both"
        % (node.op, node.name, dtype_name(was), state.table.profile, ", ".join(sorted(entry.dtypes)), policy.name)
    )


def _all_neutral(state: State, node: Node, inputs: Tuple[int, ...]) -> bool:
    return all(producer(state, node, number)[1] == NEUTRAL for number in inputs)


def _with_kernel(state: State, node: Node, wanted: List[Wanted]) -> List[Wanted]:
    """Reverts a decision for which the node's device has no kernel."""
    dtypes = tuple([dtype for dtype, _, _ in wanted])
    if dtypes == node.dtypes or state.kernels.runs(node.layout, node.device, dtypes):
        return wanted
    return [w if w[0] == was else (was, Reason.NO_KERNEL, w[2]) for w, was in zip(wanted, node.dtypes)]


def _decide_cast(state: State, position: int, node: Node, entry: Entry) -> None:
    """An existing Cast: its input follows, its output stays; gray consumers look through it unless it is black."""
    first = state.first[position]
    source, target = node.layout.inputs[0], node.layout.outputs[0]
    slot, meaning = producer(state, node, 0)
    if slot >= 0 and not _is_reference(state, node):
        state.becomes[first + source] = state.becomes[slot]
    state.reasons[first + source] = state.reasons[first + target] = Reason.CAST
    if node.dtypes[target] in LOW:
        meaning = LOWERED
    elif node.dtypes[source] in FLOATS:
        meaning = COMPUTED if entry.listed == "black" else meaning
    elif dtype_name(node.dtypes[source]) in INTEGERS:
        meaning = NEUTRAL  # integers and booleans are data, not results to protect
    else:
        meaning = COMPUTED
    set_meaning(state, first + target, meaning)


def _is_reference(state: State, node: Node) -> bool:
    port = node.inputs[0]
    return port.port in state.view.nodes[port.node].layout.ref_outputs
