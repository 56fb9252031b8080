"""What a walk over a graph of any kind reaches: nodes, tensors, names, functions."""

from typing import Any, Callable, Collection, Container, Iterable, Iterator, List, Set, TypeVar

Place = TypeVar("Place")


def reached(starts: Iterable[Place], neighbours: Callable[[Place], Iterable[Place]]) -> Iterator[Place]:
    """Yields where a walk comes, depth first, each place once.

    It goes no further than it is asked to: a caller that has seen enough stops.

    Args:
        starts: where it begins; they are yielded too.
        neighbours: function of a place that returns those that it leads to; called when the next one is asked for.
    """
    seen: Set[Place] = set()
    ahead = list(starts)
    while ahead:
        place = ahead.pop()
        if place not in seen:
            seen.add(place)
            yield place
            ahead += neighbours(place)


def behind(value: Any, ops: Collection[str] = ("Identity",), fed: Container[Any] = ()) -> Any:
    """Returns the tensor that ops pass on as a tensor; the tensor itself if none does.

    Args:
        value: ir.graph.Value.
        ops: those that pass on their first input.
        fed: nodes whose tensors are fed: they pass on nothing.
    """
    while value.node.op in ops and value.node not in fed:
        value = value.node.inputs[0]
    return value


def givers(op: Any, fed: Container[str] = ()) -> List[Any]:
    """Returns the ops that a tf.Operation waits for and those that it takes its inputs from.

    Args:
        op: tf.Operation.
        fed: names of the tensors that are fed: nobody gives them.
    """
    return [*op.control_inputs, *(tensor.op for tensor in op.inputs if tensor.name not in fed)]
