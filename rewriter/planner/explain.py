"""Why a node has its dtypes, and where two plans of one graph differ."""

from typing import Dict, List, NamedTuple, Optional, Tuple

from ..errors import ConfigError, nearest
from ..graph.emulation import Way
from ..graph.graph_view import Slot
from ..tables.dtypes import name as dtype_name
from .decisions import Decision, Plan
from .report import MOST_LINES, slot_name

Key = Tuple[str, Slot]  # of a decision


def explain(plan: Plan, node: str) -> str:
    """Returns the chain of reasons of each floating slot of a node, and the casts at it, as text.

    Raises:
        ConfigError: the graph has no such node.
    """
    positions = plan.view.positions()
    if node not in positions:
        raise ConfigError("--explain: no node '%s' in the graph%s" % (node, nearest(node, positions)))
    decided: Dict[Key, Decision] = {(d.node, d.slot): d for d in plan.decisions()}
    lines = ["%s (%s)" % (node, plan.view.nodes[positions[node]].op)]
    chains = [_chain(decided, key) for key in decided if key[0] == node]
    lines += [line for chain in chains for line in chain] or ["  has no floating-point type"]
    return "\n".join(lines + _casts_at(plan, node)) + "\n"


def _chain(decided: Dict[Key, Decision], start: Key) -> List[str]:
    lines: List[str] = []
    seen = set()
    key: Optional[Key] = start
    while key is not None and key not in seen:
        seen.add(key)
        d = decided[key]
        runs = "" if d.way is Way.KERNEL else ", runs as %s" % d.way.value
        change = "%s" if d.was == d.becomes else "%s, was " + dtype_name(d.was)
        text = "%s %s: %s%s" % (slot_name(*key), change % dtype_name(d.becomes), d.reason.value, runs)
        lines.append("  " + text if not lines else "    because of %s (%s) %s" % (key[0], d.op, text))
        key = d.because
    return lines


def _casts_at(plan: Plan, node: str) -> List[str]:
    """The Casts of a node's outputs, and those that it reads."""
    names = [node.name for node in plan.view.nodes]
    lines = []
    for cast in plan.casts:
        readers = [names[position] for position, _ in cast.consumers]
        if cast.tensor.partition(":")[0] == node or node in readers:
            more = ", and %d more" % (len(readers) - 3) if len(readers) > 3 else ""
            shown = ", ".join(readers[:3]) or "what is fetched"
            lines.append("  cast of %s to %s for %s%s" % (cast.tensor, dtype_name(cast.dtype), shown, more))
    return lines


class Difference(NamedTuple):
    """A slot that two plans decide differently, with what each says: "float16: white-listed"."""

    node: str
    op: str
    slot: Slot
    one: str
    other: str


def differences(one: Plan, other: Plan) -> List[Difference]:
    """Returns the slots whose dtypes differ between two plans of the same graph, ordered by node name."""
    before = {(d.node, d.slot): d for d in one.decisions()}
    differences = []
    for d in other.decisions():
        was = before.get((d.node, d.slot))
        if was is not None and was.becomes != d.becomes:
            differences.append(Difference(d.node, d.op, d.slot, _said(was), _said(d)))
    return differences


def _said(d: Decision) -> str:
    return "%s: %s" % (dtype_name(d.becomes), d.reason.value)


def as_text(differences: List[Difference], one: str, other: str) -> str:
    """Returns the differences as text, grouped by op type and by what the plans called `one` and `other` say."""
    groups: Dict[Tuple[str, str, str], List[str]] = {}
    for difference in differences:
        groups.setdefault((difference.op, difference.one, difference.other), []).append(
            slot_name(difference.node, difference.slot)
        )
    lines = ["%d types differ between %s and %s" % (len(differences), one, other)]
    for (op, was, now), slots in sorted(groups.items(), key=lambda pair: (-len(pair[1]), pair[0])):
        lines += ["", "%s, %d: %s -> %s" % (op, len(slots), was, now)]
        lines += ["  " + slot for slot in slots[:MOST_LINES]]
        lines += ["  and %d more" % (len(slots) - MOST_LINES)] if len(slots) > MOST_LINES else []
    return "\n".join(lines) + "\n"
