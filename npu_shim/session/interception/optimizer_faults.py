"""Runs a session's graph without the optimizer of TensorFlow's own that breaks it, and names that one.

Where one of Grappler's optimizers leaves a graph that is none (an input of a node that is gone, a cycle), TensorFlow
says so in its log, drops all that Grappler has made, NpuOptimizer's part too, and runs the graph as it was written. The
hook sees that it comes without a mark (`patch._on_missed_graph`). Nothing has run then. So an optimizer is switched off
for the session, and what was to run is run again; it is that optimizer if the graph then arrives, else it is the next
one's turn, and at last all are off.
"""

from __future__ import annotations

import dataclasses
import re
import threading
from typing import Any, Callable, TypeVar

import tensorflow.compat.v1 as tf

from npu_shim.session import lines

Result = TypeVar("Result")
OFF, DISABLED = 2, 1  # RewriterConfig.OFF, and true
TFG = "disable_tfg_optimizer"  # it refuses a conditional whose branches have other static shapes than its result
# fields of RewriterConfig -> the number that switches them off; those that have been seen to break graphs first
OPTIMIZERS = {
    "arithmetic_optimization": OFF, "loop_optimization": OFF, "dependency_optimization": OFF, "constant_folding": OFF,
    "remapping": OFF, "layout_optimizer": OFF, "shape_optimization": OFF, "common_subgraph_elimination": OFF,
    "function_optimization": OFF, "implementation_selector": OFF, "pin_to_host_optimization": OFF,
    "scoped_allocator_optimization": OFF, "memory_optimization": 1,  # NO_MEM_OPT
    TFG: DISABLED,
}  # fmt: skip
AGAIN = "npu_shim: session %d: the graph is to run again, without %s"
_AGAIN = re.compile(r"npu_shim: session (\d+): the graph is to run again")
_lock = threading.Lock()


@dataclasses.dataclass
class _Search:
    """What was tried in a session.

    Attributes:
        given: field -> the number that the session's config has.
        tried: the fields that are off now, until it is known that one of them is to stay so.
        ahead: lists of fields to try next.
    """

    given: dict[str, int]
    tried: tuple[str, ...]
    ahead: list[tuple[str, ...]]


_searches: dict[int, _Search] = {}  # number of a session -> its _Search


def switch_one_off(number: int, rewriter: Any, switch: Callable[[str, int], None]) -> str | None:
    """Switches off what is to be tried next in a session whose graph was dropped, and on what was tried before.

    Args:
        number: of the session.
        rewriter: its RewriterConfig.
        switch: function that sets a field of it to a number, for the graphs to come.

    Returns:
        The error to answer, by which `until_whole` runs the graph again; None where everything was tried.
    """
    with _lock:
        search = _searches.get(number)
        if search is None or not (search.tried or search.ahead):
            search = _searches[number] = _begun(rewriter)
        for field in search.tried:
            switch(field, search.given[field])
        search.tried = search.ahead.pop(0) if search.ahead else ()
        for field in search.tried:
            switch(field, OPTIMIZERS[field])
        return AGAIN % (number, _shown(search.tried)) if search.tried else None


def until_whole(run: Callable[[], Result]) -> Result:
    """Runs something in a session, again as often as `switch_one_off` asks; then says which optimizer it was."""
    numbers: list[int] = []
    while True:
        try:
            result = run()
        except tf.errors.FailedPreconditionError as error:
            asked = _AGAIN.search(error.message or "")
            if asked is None:
                raise
            numbers.append(int(asked.group(1)))
            continue
        if numbers:
            _settle(numbers[-1])
        return result


def is_broken(graph_def: Any) -> bool:
    """Whether a graph that TensorFlow's optimizers give has an input of a node that is not there."""
    names = {node.name for node in graph_def.node}
    return any(text.lstrip("^").partition(":")[0] not in names for node in graph_def.node for text in node.input)


def _begun(rewriter: Any) -> _Search:
    known = rewriter.DESCRIPTOR.fields_by_name
    given = {field: getattr(rewriter, field) for field in OPTIMIZERS if field in known}
    on = [field for field, number in given.items() if number != OPTIMIZERS[field]]
    return _Search(given, (), [*((field,) for field in on), tuple(on)] if on else [])


def _settle(number: int) -> None:
    """Leaves off what is off, and says so."""
    with _lock:
        search = _searches.get(number)
        if search is None or not search.tried:
            return  # of another process, or another thread has come to it first
        tried, search.tried, search.ahead = search.tried, (), []
    lines.once(
        "TensorFlow's own optimizer breaks a graph of this session (its log says how, with TF_CPP_MIN_LOG_LEVEL=0); "
        "the session goes on without it: rewrite_options.%s is %s" % (_shown(tried), "on" if tried == (TFG,) else "off")
    )


def _shown(fields: tuple[str, ...]) -> str:
    return fields[0] if len(fields) == 1 else "(all optimizers)"
