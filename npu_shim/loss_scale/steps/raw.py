"""Finds the gradients of a loss behind those that a script applies: clipping may have made an infinity finite.

An NPU sees an overflow where it happens, in a status register, whatever the script makes of the gradients afterwards.
"""

from __future__ import annotations

from typing import Any, Sequence

from npu_shim.loss_scale.automatic.origin import can_read, is_of_all_workers

Pairs = Sequence["tuple[Any, Any]"]


def behind(given: Pairs, applied_pairs: Pairs) -> tuple[list[tuple[Any, Any]], bool]:
    """Returns (those of `made` from which `given` are computed in the same run and which are hidden, shared).

    Hidden is what is not among `given` itself. What stands in a loop, a branch or a function cannot be read and is left
    out. Shared says whether all workers' gradients are reduced behind it, so that one worker alone sees its overflow.

    Args:
        given: list of (gradient, variable) that an optimizer applies: Tensor or IndexedSlices.
        applied_pairs: list of such pairs that `compute_gradients` returned in this graph.
    """
    pair_of = {_key(_tensor(gradient)): (gradient, variable) for gradient, variable in applied_pairs}
    applied = {_key(_tensor(gradient)) for gradient, _ in given}
    reached: set[Any] = set()
    reduced, seen, ahead = False, set(), [_tensor(gradient) for gradient, _ in given]
    while ahead:
        tensor = ahead.pop()
        if _key(tensor) in pair_of:
            reached.add(_key(tensor))
        elif tensor.op not in seen:
            seen.add(tensor.op)
            reduced = reduced or bool(is_of_all_workers(tensor.op))
            ahead += list(tensor.op.inputs)
    hidden = [pair for key, pair in pair_of.items() if key in reached - applied and can_read(_tensor(pair[0]))]
    return hidden, reduced and bool(hidden)


def _tensor(gradient: Any) -> Any:
    return getattr(gradient, "values", gradient)


def _key(tensor: Any) -> tuple[Any, str]:
    return tensor.graph, tensor.name
