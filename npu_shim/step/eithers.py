"""Values that have several shapes, as a traced predicate says: what takes one is computed of both.

    loss = tf.cond(tf.size(rows) > 0, lambda: errors(rows), lambda: 0.0)    a matrix, or a scalar
    tf.reduce_mean(loss)                                                    a scalar: one of two means

What is alike again is one value, which the predicate selects. A Switch of the same predicate takes that of its side.
"""

from __future__ import annotations

from typing import Any, Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from npu_shim.step.values import Either, Rows, is_known, is_tensor, traced


def computed(function: Callable[[Sequence[Any]], Any], values: Sequence[Any]) -> Any:
    """What a function gives for values some of which are Eithers."""
    predicate = next((value.predicate for value in values if isinstance(value, Either)), None)
    if predicate is None:
        return function(values)
    sides = [computed(function, [of_side(value, predicate, side) for value in values]) for side in (False, True)]
    if any(type(side) is tuple for side in sides):
        return tuple(one_of(predicate, *parts) for parts in zip(*sides))
    return one_of(predicate, *sides)


def of_side(value: Any, predicate: Any, side: bool) -> Any:
    """What an Either of this predicate is on a side; another value as it is."""
    return value.sides[side] if isinstance(value, Either) and value.predicate is predicate else value


def one_of(predicate: Any, no: Any, yes: Any) -> Any:
    """One of two values: one value where they are alike, else an Either; of known ones that differ too."""
    if no is yes:
        return no
    if is_known(no, yes):
        is_same = no.dtype == yes.dtype and np.array_equal(no, yes)
        return no if is_same else Either(predicate, (no, yes))
    return Either(predicate, (no, yes)) if not are_alike(no, yes) else _selected(predicate, no, yes)


def as_tensor(value: Any) -> Any:
    """An Either of two known tensors that are alike, traced; another value as it is."""
    is_one = isinstance(value, Either) and are_alike(*value.sides)
    return _selected(value.predicate, *value.sides) if is_one else value


def _selected(predicate: Any, no: Any, yes: Any) -> Any:
    return jax.tree.map(lambda a, b: a if a is b else jnp.where(predicate, b, a), traced(no), traced(yes))


def are_alike(no: Any, yes: Any) -> bool:
    """Whether two values are tensors, or rows, of one shape and dtype."""
    if isinstance(no, Rows) and isinstance(yes, Rows):
        return are_alike(no.array, yes.array)
    return is_tensor(no) and is_tensor(yes) and no.shape == yes.shape and no.dtype == yes.dtype
