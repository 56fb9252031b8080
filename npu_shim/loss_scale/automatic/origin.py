"""From the gradients that an optimizer is given, back to the calls of tf.gradients that made them."""

from __future__ import annotations

import dataclasses
import re
from typing import Any, Iterator, Sequence

import tensorflow.compat.v1 as tf

from npu_shim.distributed.job import ranks
from npu_shim.loss_scale.automatic import own
from npu_shim.loss_scale.automatic.calls import Call, registry_of
from npu_shim.rewriter.graph.walks import reached

# an op that writes into the variable, or adds to the accumulator, that is its first input
WRITER = re.compile(r"(Resource)?(Assign\w*|Scatter\w+)$|\w*AccumulatorApplyGradient$")
COLLECTIVE = re.compile(r"Collective(Reduce|Gather)$")
HOLDS_GRADIENTS = re.compile(r"VarHandleOp$|Variable(V2)?$|(Resource|Sparse)?ConditionalAccumulator$|ResourceAccum\w+$")


@dataclasses.dataclass(frozen=True)
class Origin:
    """Where gradients come from.

    Attributes:
        calls: tuple of the Calls that made them, also those that these depend on (of a gradient penalty, of a loss
            that was backpropagated in two parts).
        tested: tuple of tensors: all results of the calls from which the gradients are computed in the same run, and
            those of the others that these depend on, as far as they can be read where the optimizer is applied.
        factors: frozenset of own.Factor, what the script multiplies the calls' results by; not what a factor of theirs
            is made of: clipping by a norm of 5 multiplies by one that has a 1 / 5 in it.
        is_reduced: whether they are reduced over all workers: what the calls made on one is then hidden to the others.
    """

    calls: tuple[Call, ...]
    tested: tuple[Any, ...]
    factors: frozenset[own.Factor]
    is_reduced: bool


def origin_of(gradients: Sequence[Any]) -> Origin:
    """Returns where gradients come from.

    Args:
        gradients: list of Tensor or IndexedSlices, as `apply_gradients` is given them.
    """
    calls: dict[Call, None] = {}
    results: dict[str, Any] = {}
    passed: set[Any] = set()
    given = [getattr(g, "values", g) for g in gradients]
    for tensor, in_this_run in _made_before(given, passed):
        call = registry_of(tensor.graph).call_of(tensor)
        calls[call] = None
        if in_this_run:  # the others too: the script may apply them in a call of their own
            results.update((result.name, result) for result in call.results)
    for tensor in _upstream_of(list(results.values()), set(calls)):
        calls[registry_of(tensor.graph).call_of(tensor)] = None
        results[tensor.name] = tensor
    factors = frozenset(factor for op in _carriers(given, passed) for factor in own.products_of(op))
    readable = tuple(tensor for tensor in results.values() if can_read(tensor))
    return Origin(tuple(calls), readable, factors, any(map(is_of_all_workers, passed)))


def can_read(tensor: Any) -> bool:
    """Whether an op that is made here can read a tensor: not one from within a loop, a branch or a function."""
    graph, context = tensor.graph, tensor.op._get_control_flow_context()
    if context is None:
        return True
    here = tf.get_default_graph()._get_control_flow_context() if tf.get_default_graph() is graph else None
    while here is not None and here is not context:
        here = here.outer_context
    return here is not None


def _made_before(tensors, passed) -> Iterator[tuple[Any, bool]]:
    """Yields the results of calls from which tensors are computed, each with whether that is in the same run.

    The ops between them are added to the set `passed`.

    Gradients that wait in an accumulator, or in a variable that is not trained, were computed in some other run.
    """
    seen: set[tuple[Any, bool]] = set()
    ahead = [(tensor, True) for tensor in tensors]
    while ahead:
        tensor, in_this_run = ahead.pop()
        if _is_made(tensor):
            yield tensor, in_this_run
            continue
        op = tensor.op
        if (op, in_this_run) in seen:
            continue
        seen.add((op, in_this_run))
        passed.add(op)
        ahead += [(tensor, in_this_run) for tensor in op.inputs]
        if HOLDS_GRADIENTS.match(op.type):
            ahead += [(written, False) for written in _written_into(op)]


def _is_made(tensor) -> bool:
    """Whether a call made a tensor."""
    return registry_of(tensor.graph).call_of(tensor) is not None


def _carriers(gradients, passed) -> Iterator[Any]:
    """Yields the ops passed that scale what the calls made: no factor's own, nor those of a weight that decays.

    Upstream from the gradients by what is scaled, then back from where a call's results come in.
    """
    held = {op: list(_written_into(op)) for op in passed if HOLDS_GRADIENTS.match(op.type)}

    def scaled(op):
        return [*(taken for n, taken in enumerate(op.inputs) if own.is_scaled(op, n)), *held.get(op, ())]

    starts = [tensor.op for tensor in gradients if not _is_made(tensor)]
    carrying = set(reached(starts, lambda op: [tensor.op for tensor in scaled(op) if not _is_made(tensor)]))
    entered = [op for op in carrying if held.get(op) or any(map(_is_made, op.inputs))]
    return reached(entered, lambda op: [
        user for tensor in op.outputs for user in tensor.consumers() if user in carrying
    ])  # fmt: skip


def is_of_all_workers(op: Any) -> bool:
    """Whether an op reduces or gathers over all workers."""
    return COLLECTIVE.match(op.type) is not None and op.get_attr("group_size") == ranks.world_size()


def _written_into(holder):
    """Yields the tensors that are written into an accumulator or into a variable that is not trained."""
    if any(variable.op is holder for variable in tf.trainable_variables()):
        return
    for op in holder.outputs[0].consumers():
        if WRITER.match(op.type):
            yield from list(op.inputs)[1:]


def _upstream_of(tensors, calls) -> Iterator[Any]:
    """Yields the readable results of other calls from which these tensors are computed."""
    others = {call for tensor in tensors for call in registry_of(tensor.graph).calls} - calls
    if not others:
        return
    seen, ahead = set(), [taken for tensor in tensors for taken in tensor.op.inputs]
    while ahead:
        tensor = ahead.pop()
        if registry_of(tensor.graph).call_of(tensor) in others and can_read(tensor):
            yield tensor
        if tensor.op not in seen and not WRITER.match(tensor.op.type):
            seen.add(tensor.op)
            ahead += list(tensor.op.inputs)
