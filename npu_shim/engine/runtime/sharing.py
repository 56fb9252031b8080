"""Runs that differ in little but summaries are one program: an earlier step's, whose further results nobody reads.

    first [train, loss, merged], then [train, loss]: the program of the first has a few scalars more, which are cheap

The other order is two programs: what is fetched later is not known when the first is compiled. So are runs whose
summaries show whole activations or gradients: these would stay in memory, and out of fusions, in every step. A run that
fetches nothing has its own program too: it returns while the device computes; so has one without a random op of the
earlier one, which would draw in vain and give other numbers from then on.
"""

from __future__ import annotations

from typing import Any, Iterable, Iterator, Mapping

from npu_shim.engine.partition.cut import Cut, Program
from npu_shim.engine.partition.nodes import Node

KEPT_IN_A_RUN = ("TensorArray", "Stack")  # beginnings of stateful ops of which nothing is left behind a run
SMALL = 1024  # elements of a tensor that a step may compute in vain


def step_for(cut: Cut, results: Iterable[str], nodes: Mapping[str, Node], steps: Iterable[Any]) -> Any:
    """Returns the `step.Step` whose program computes all of a step and little more, None if there is none.

    Args:
        cut: the step's.
        results: names of the tensors that its program gives.
        nodes: name -> Node, for all nodes that the step needs.
        steps: earlier `step.Step`s of the same graph, with the same feeds.
    """
    wanted = set(results)
    return next((step for step in steps if _serves(cut, wanted, nodes, step)), None)


def _serves(cut: Cut, wanted: set[str], nodes: Mapping[str, Node], step: Any) -> bool:
    if len(cut.programs) > 1 or len(step.parts) > 1:
        return False
    own, other = cut.programs[0], step.parts[0].program
    given = {fetch.name for fetch in step.parts[0].prepared.fetches if not isinstance(fetch, str)}
    return bool(
        own.nodes <= other.nodes
        and wanted <= given
        and (wanted or not given)
        and _inputs(own) == _inputs(other)
        and cut.feeding == step.cut.feeding
        and not any(map(_has_effects, (step.nodes[name] for name in other.nodes - nodes.keys())))
        and all(map(_is_small, _in_vain(step, other.nodes - nodes.keys(), given - wanted)))
    )


def _inputs(program: Program) -> tuple[Any, ...]:
    """What has to be the same: what the session gives, and what runs for its effect."""
    return sorted(program.fed), sorted(program.runs)


def _has_effects(node: Node) -> bool:
    """Whether more than a result is left of a node: a random op's counter goes on."""
    return node.essential or not (node.shared or node.op.startswith(KEPT_IN_A_RUN))


def _in_vain(step: Any, nodes: Iterable[str], results: Iterable[str]) -> Iterator[Any]:
    """Yields the tensors (tf.Tensor) that a program computes, or gives, only for the earlier step."""
    for name in nodes:
        yield from step.graph.get_operation_by_name(name).outputs
    for name in results:
        yield step.graph.as_graph_element(name)


def _is_small(tensor: Any) -> bool:
    size = tensor.shape.num_elements()
    return size is not None and size <= SMALL
