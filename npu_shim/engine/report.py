"""Reports what the engine would do with a run: whether it is taken, what stays in the session, and why."""

from __future__ import annotations

from typing import Any, Iterable, Iterator, Mapping, Sequence

from npu_shim.engine.partition import cut, facts, step_detection
from npu_shim.engine.partition.cut import Place
from npu_shim.engine.partition.nodes import Node
from npu_shim.options import engine
from npu_shim.rewriter.errors import ConfigError, nearest
from npu_shim.rewriter.graph.arguments import source_of

SHOWN = 12  # host ops in a list


def of_graph(graph_def: Any, fetches: Sequence[str], feeds: Iterable[str] = ()) -> str:
    """Returns what a session with engine "pjrt" would do with a run, as text of a few lines.

    Whether XLA can compile the program is known only when it is compiled, for given shapes of the feeds.

    Args:
        graph_def: tf.compat.v1.GraphDef.
        fetches: names of tensors ("x:0") and operations ("x").
        feeds: names of tensors that are fed; placeholders need not be named.

    Raises:
        ConfigError: a fetch that is not in the graph.
    """
    nodes, plan, refusal = _plan(graph_def, fetches, feeds)
    return refusal if plan is None else "\n".join(_lines(plan, nodes)) + "\n"


def programs(graph_def: Any, fetches: Sequence[str], feeds: Iterable[str] = ()) -> int:
    """Returns into how many programs the engine would make a run, 0 where it stays in the session; as `of_graph`."""
    plan = _plan(graph_def, fetches, feeds)[1]
    return 0 if plan is None else len(plan.programs)


def ranks_meet_inside(graph_def: Any, fetches: Sequence[str], feeds: Iterable[str] = ()) -> bool:
    """Whether ranks may meet inside of the program of a run, which has collectives; as `of_graph`."""
    nodes, plan, _ = _plan(graph_def, fetches, feeds)
    return plan is not None and bool(_meetings(plan, nodes))


def _meetings(plan: cut.Cut, nodes: Mapping[str, Node]) -> list[str]:
    """Names of the nodes of a program in which ranks meet."""
    inside = (name for program in plan.programs for name in program.nodes)
    return sorted(name for name in inside if nodes[name].op in facts.MEETING)


def _plan(
    graph_def: Any, fetches: Sequence[str], feeds: Iterable[str]
) -> tuple[Mapping[str, Node], cut.Cut | None, str]:
    """Returns (the nodes that the run needs, its Cut, why it has none)."""
    names = {node.name for node in graph_def.node}
    missing = [name for name in fetches if source_of(name) not in names]
    if missing:
        raise ConfigError(*("fetch '%s' is not in the graph%s" % (n, nearest(source_of(n), names)) for n in missing))
    feeds = frozenset(feeds)
    fetches = [name for name in fetches if name not in feeds]
    inside = (True, False) if engine.ranks_meet_inside() else (False,)  # of more than one program, ranks meet outside
    for meets in inside:
        nodes = facts.nodes_of(graph_def, [source_of(name) for name in fetches], feeds, meets)
        reason = step_detection.refusal(nodes)
        if reason:
            return nodes, None, "engine: the run is no training step: %s; it runs in the session\n" % reason
        tensors = [name for name in fetches if ":" in name]
        plan = cut.plan(nodes, tensors, [name for name in fetches if ":" not in name])
        if len(plan.programs) == 1:
            break
    if plan.refusal:
        return nodes, None, "engine: the run stays in the session: %s\n" % plan.refusal
    return nodes, plan, ""


def _lines(plan: cut.Cut, nodes: Mapping[str, Node]) -> Iterator[str]:
    counts = [len(program.nodes) for program in plan.programs]
    which = "one program" if len(counts) == 1 else "%d programs" % len(counts)
    yield "engine: %s of %s ops" % (which, " and ".join(map(str, counts)))
    met = _meetings(plan, nodes)
    if met:
        yield "  of all ranks, which meet in it (%d): '%s'%s" % (len(met), met[0], ", ..." if len(met) > 1 else "")
    for place, words in ((Place.FEED, "before it"), (Place.MIDDLE, "in its middle"), (Place.READ, "after it")):
        names = [name for name in sorted(plan.reasons) if plan.places.get(name) is place]
        if names:
            yield "  in the session, %s (%d):" % (words, len(names))
            yield from ("    '%s' (%s): %s" % (name, nodes[name].op, plan.reasons[name]) for name in names[:SHOWN])
        if len(names) > SHOWN:
            yield "    ... and %d others" % (len(names) - SHOWN)
    for words, tensors in (("fed to it", plan.fed), ("read from it", plan.shown)):
        if tensors:
            yield "  %s: %s" % (words, ", ".join(tensors))
    if plan.silent:
        yield "  prints and assertions that nothing runs: %s" % ", ".join(plan.silent)
