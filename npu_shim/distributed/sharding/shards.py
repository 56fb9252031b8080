"""Divides gradients among ranks: each rank owns the update of some weights.

Off the NPU every rank updates all weights, with the same result; these functions tell scripts who would own which.
Source: Ascend adapter of 2023-12 (r1.15), util.
"""

from __future__ import annotations

from typing import Any, Iterable

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.errors import ConfigError

_items: list[GradDivisionItem] = []  # of the last `add_grads_and_vars`


class GradDivisionItem:
    """A gradient, its variable, its size in bytes (0 for a scalar) and its owner's rank (-1 before it has one).

    Args:
        grad: Tensor of a known shape, or IndexedSlices, which count as their variable does.
        var: variable.
    """

    def __init__(self, grad: Any, var: Any) -> None:
        self.grad, self.var = grad, var
        shape = var.shape if isinstance(grad, tf.IndexedSlices) else grad.shape
        self.size = shape.num_elements() * grad.dtype.size if len(shape) else 0
        self.root_rank_id = -1


def fair_division(inputs: list[GradDivisionItem], number: int) -> list[GradDivisionItem]:
    """Assigns contiguous items to `number` ranks, so that the ranks' total sizes are about equal.

    sizes 4 4 4 4, 2 ranks -> owners 0 0 1 1; sizes 9 1 1 1, 2 ranks -> owners 0 1 1 1

    Each rank in turn takes the next items until one more would bring its total further from the mean of the remaining
    sizes over the remaining ranks. An item larger than all others together is excluded from that mean.

    Args:
        inputs: list of GradDivisionItem; their root_rank_id is set.
        number: int, 0 up to the number of items.

    Returns:
        The same list.

    Raises:
        ConfigError: there are fewer items than ranks.
    """
    if not 0 <= number <= len(inputs):
        raise ConfigError("fair_division: %d ranks for %d gradients" % (number, len(inputs)))
    at = 0
    for rank in range(number):
        left = number - rank
        mean, total, first = _mean_size([item.size for item in inputs[at:]], left), 0, at
        for item in inputs[at : len(inputs) - left + 1]:
            more = total + item.size
            if at > first and more - mean > mean - total:
                break
            item.root_rank_id, total, at = rank, more, at + 1
            if more > mean:
                break
    return inputs


def _mean_size(sizes: list[int], ranks: int) -> int:
    """Returns the mean size for each rank, without the items that are larger than all others together."""
    while ranks > 1 and sizes and max(sizes) > sum(sizes) - max(sizes):
        sizes = sorted(sizes)[:-1]
        ranks -= 1
    return sum(sizes) // ranks


def add_grads_and_vars(grads_and_vars: Iterable[tuple[Any, Any]], rank_size: int) -> None:
    """Divides gradients among ranks, skipping those that are None.

    Args:
        grads_and_vars: list of (gradient or None, variable).
        rank_size: int.

    Raises:
        ConfigError: there are fewer gradients than ranks.
    """
    _items[:] = fair_division([GradDivisionItem(g, v) for g, v in grads_and_vars if g is not None], rank_size)


def get_gid_by_grad(grad: Any) -> int:
    """Returns the rank of a gradient's owner, -1 where it has none."""
    return _owner("grad", grad)


def get_gid_by_weight(weight: Any) -> int:
    """Returns the rank of a variable's owner, -1 where it has none."""
    return _owner("var", weight)


def _owner(side: str, wanted: Any) -> int:
    roots = [item.root_rank_id for item in _items if getattr(item, side).name == wanted.name]
    return roots[-1] if roots else -1


def get_all_grad_item() -> list[GradDivisionItem]:
    """Returns the GradDivisionItems of the last `add_grads_and_vars`, a list."""
    return _items
