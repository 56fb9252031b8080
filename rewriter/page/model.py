"""What a page shows of a plan, as JSON values: columns by node and by slot, so that 30,000 nodes stay small."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

from ..graph.graph_view import Node
from ..graph.walks import reached
from ..planner import report
from ..planner.decisions import Plan
from ..tables.dtypes import BFLOAT16, FLOAT16, FLOAT32, FLOATS, LOW
from ..tables.dtypes import name as dtype_name
from .sizes import Size

BYTES = {FLOAT16: 2, BFLOAT16: 2, FLOAT32: 4}
NOTHING = Size(0, ())


def of(plan: Plan, sizes: Mapping[str, Size], title: str, seconds: float) -> dict[str, Any]:
    """Returns the page of one planned graph.

    Args:
        plan: the graph's.
        sizes: node name -> `sizes.Size`; nodes that are missing count as nothing.
        title: what the graph is, for people.
        seconds: how long the rewrite took.

    Returns:
        JSON values: `nodes` and `slots` are dicts of columns of equal length; columns of words hold positions in
        `words`; `slots.because` is the position of the slot that decided, or -1. Nodes are those with a floating slot
        that what is fetched or run needs: no initializers.
    """
    words = _Words()
    floats = [k for k in _needed(plan) if any(dtype in FLOATS for dtype in plan.view.nodes[k].dtypes)]
    shown = sorted(floats, key=lambda k: plan.view.nodes[k].name)
    return {
        "title": title,
        "mode": plan.policy.name,
        "low": dtype_name(plan.policy.low),
        "summary": report.summary(plan, round(seconds, 3)),
        "warnings": [_warning(plan, text) for text in plan.warnings],
        "unmatched": list(plan.unmatched),
        "sized": bool(sizes),
        "nodes": _nodes(plan, shown, sizes, words),
        "slots": _slots(plan, shown, words),
        "casts": _casts(plan, sizes),
        "words": words.all,
    }


def _needed(plan: Plan) -> set[int]:
    """Positions of the nodes that the preserved ones need, themselves included."""
    nodes = plan.view.nodes
    return set(reached(plan.view.preserved, lambda position: [
        *(port.node for port in nodes[position].inputs), *nodes[position].controls
    ]))  # fmt: skip


class _Words:
    """Each word once, and its number."""

    def __init__(self) -> None:
        self.all: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, word: str) -> int:
        if word not in self._numbers:
            self._numbers[word] = len(self.all)
            self.all.append(word)
        return self._numbers[word]


def _nodes(plan: Plan, shown: Sequence[int], sizes: Mapping[str, Size], words: _Words) -> dict[str, list[Any]]:
    nodes = [plan.view.nodes[k] for k in shown]
    return {
        "name": [node.name for node in nodes],
        "op": [words.number(node.op) for node in nodes],
        "low": [int(_is_low(plan, k)) for k in shown],
        "operations": [sizes.get(node.name, NOTHING).operations for node in nodes],
        "before": [_bytes(node, sizes, node.dtypes) for node in nodes],
        "after": [_bytes(node, sizes, _becomes(plan, k)) for k, node in zip(shown, nodes)],
        "custom": [customize_line(node) for node in nodes],
    }


def _becomes(plan: Plan, position: int) -> Sequence[int]:
    first = plan.first[position]
    return plan.becomes[first : first + len(plan.view.nodes[position].dtypes)]


def _is_low(plan: Plan, position: int) -> bool:
    """Whether the first floating slot of a node is low: the dtype that it is said to run in."""
    dtypes = plan.view.nodes[position].dtypes
    first = next(slot for slot, dtype in enumerate(dtypes) if dtype in FLOATS)
    return _becomes(plan, position)[first] in LOW


def _bytes(node: Node, sizes: Mapping[str, Size], dtypes: Sequence[int]) -> int:
    """The bytes of a node's floating outputs, whose slots have the given dtypes."""
    counts = zip(node.layout.outputs, sizes.get(node.name, NOTHING).elements)
    return sum(count * BYTES.get(dtypes[slot], 0) for slot, count in counts if slot >= 0)


def customize_line(node: Node, dtypes: Sequence[int] | None = None) -> str:
    """The line of a customize_dtypes file that asks for float32 for a node, or for the dtypes of its floating slots."""

    def asked(slots: Sequence[int]) -> list[str]:
        return [_asked(node, slot, dtypes) for slot in slots]

    return _line(node.name, asked(node.layout.inputs), asked(node.layout.outputs))


def _asked(node: Node, slot: int, dtypes: Sequence[int] | None) -> str:
    if slot < 0 or node.dtypes[slot] not in FLOATS:
        return ""
    return dtype_name(FLOAT32 if dtypes is None else dtypes[slot])


def float32_line(name: str, inputs: Sequence[bool], outputs: Sequence[bool]) -> str:
    """The line of a customize_dtypes file that asks for float32 at the inputs and outputs of a node that are true."""
    return _line(name, *(["float32" if is_float32 else "" for is_float32 in side] for side in (inputs, outputs)))


def _line(name: str, inputs: Sequence[str], outputs: Sequence[str]) -> str:
    return "%s::InputDtype:%s,OutputDtype:%s" % (name, ",".join(inputs), ",".join(outputs))


def _slots(plan: Plan, shown: Sequence[int], words: _Words) -> dict[str, list[int]]:
    slots = [
        (number, k, slot) for number, k in enumerate(shown)
        for slot, dtype in enumerate(plan.view.nodes[k].dtypes) if dtype in FLOATS
    ]  # fmt: skip
    rows = {plan.first[k] + slot: row for row, (_, k, slot) in enumerate(slots)}
    columns: dict[str, list[int]] = {key: [] for key in ("node", "name", "was", "becomes", "reason", "because", "way")}
    for number, k, slot in slots:
        node, entry = plan.view.nodes[k], plan.first[k] + slot
        columns["node"].append(number)
        columns["name"].append(words.number(report.slot_name("", node.layout.slots[slot])[1:]))
        columns["was"].append(words.number(dtype_name(node.dtypes[slot])))
        columns["becomes"].append(words.number(dtype_name(plan.becomes[entry])))
        columns["reason"].append(words.number(plan.reasons[entry].value))
        columns["because"].append(rows.get(plan.because[entry], -1))
        runs_so = plan.running.runs[entry] == plan.becomes[entry]
        columns["way"].append(-1 if runs_so else words.number(plan.running.ways[k].value))
    return columns


def _casts(plan: Plan, sizes: Mapping[str, Size]) -> list[list[Any]]:
    """(tensor, dtype, bytes, consumers) of each Cast, constants that are folded left out."""
    names = [node.name for node in plan.view.nodes]
    casts = []
    for cast in plan.casts:
        if not cast.folded:
            name, _, output = cast.tensor.partition(":")
            elements = sizes.get(name, NOTHING).elements
            number = int(output or 0)
            size = elements[number] * BYTES.get(cast.dtype, 0) if number < len(elements) else 0
            readers = ["%s:%d" % (names[position], number) for position, number in cast.consumers]
            casts.append([cast.tensor, dtype_name(cast.dtype), size, readers])
    return casts


def _warning(plan: Plan, text: str) -> dict[str, str]:
    """A warning with the node that it names and the line that keeps the node in float32."""
    quoted = [part for number, part in enumerate(text.split("'")) if number % 2]
    positions = plan.view.positions()
    for name in reversed(quoted):  # the reader of a constant comes behind the constant
        if name in positions and any(dtype in FLOATS for dtype in plan.view.nodes[positions[name]].dtypes):
            return {"text": text, "node": name, "line": customize_line(plan.view.nodes[positions[name]])}
    return {"text": text, "node": "", "line": ""}
