"""Optionals, in which a branch of a conditional of TensorFlow 2 keeps for its gradient what it computes.

Where another branch keeps none, or a value of another kind, in the same place, what the branch does not have is zeros
that nothing reads: the gradient's branches are chosen by the same predicate. Where what is asked for, of an open size,
may be one of several kinds, it is the one that the branch of that number has kept.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from npu_shim.step.masks import array_of
from npu_shim.step.refusals import Unsupported
from npu_shim.step.rules.table import Rule
from npu_shim.step.values import Rows, traced

Branches = tuple[int, ...]  # the numbers of the branches that gave a value, the outermost last


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=("choices", "is_there"), meta_fields=("places", "preferred")
)
@dataclasses.dataclass(frozen=True)
class Optional:
    """Values, or none.

    Attributes:
        choices: what kind of values it may have (`_kind`) -> these values.
        is_there: bool, whether it has any.
        places: (kind, Branches) of values that conditionals have given.
        preferred: the kinds that the branches around have kept, None for all.
    """

    choices: dict[str, tuple[Any, ...]]
    is_there: Any
    places: frozenset[tuple[str, Branches]] = frozenset()
    preferred: frozenset[str] | None = None


def _kind(parts: tuple[Any, ...]) -> str:
    return "%s %s" % (jax.tree.structure(parts), [(part.dtype.name, part.shape) for part in jax.tree.leaves(parts)])


def _none(attrs: Any) -> Optional:
    return Optional({}, np.bool_(False))


def _of(attrs: Any, *values: Any) -> Optional:
    parts = tuple(map(traced, values))
    return Optional({_kind(parts): parts}, np.bool_(True))


def _value(attrs: Any, held: Optional) -> Any:
    asked = list(zip(attrs["output_types"], attrs["output_shapes"]))
    fitting = [kind for kind, parts in held.choices.items() if _fits(parts, asked)]
    if len(fitting) > 1 and held.preferred is not None:
        fitting = [kind for kind in fitting if kind in held.preferred]
    if len(fitting) != 1:
        raise Unsupported("its value is one of %d kinds, expected one" % len(fitting))
    parts = held.choices[fitting[0]]
    return parts[0] if len(parts) == 1 else parts


def _fits(parts: tuple[Any, ...], asked: list[Any]) -> bool:
    return len(parts) == len(asked) and all(_is_like(part, *of) for part, of in zip(parts, asked))


def _is_like(part: Any, dtype: Any, shape: Any) -> bool:
    array = array_of(part)
    if dtype == "variant" or not hasattr(array, "shape"):
        return dtype == "variant" and not hasattr(array, "shape")
    if array.dtype != dtype or shape is None:
        return bool(array.dtype == dtype)
    sizes = (-1, *array.shape[1:]) if isinstance(part, Rows) else array.shape
    return len(shape) == len(sizes) and all(want in (-1, size) for want, size in zip(shape, sizes))


def joined(values: Sequence[Optional]) -> Optional:
    """What branches give in one place, as one would give it that has values of all kinds."""
    choices: dict[str, Any] = {}
    places = set[tuple[str, Branches]]()
    for number, value in enumerate(values):
        choices.update(value.choices)
        before = {(kind, ()) for kind in value.choices} if not value.places else value.places
        places.update((kind, (*branches, number)) for kind, branches in before)
    return Optional(choices, values[0].is_there, frozenset(places))


def on_branch(value: Any, number: int) -> Any:
    """An argument as a gradient's branch takes it: of an Optional it takes what the branch of its number has kept."""
    if not isinstance(value, Optional):
        return value
    places = frozenset((kind, branches[:-1]) for kind, branches in value.places if branches[-1:] == (number,))
    return (
        dataclasses.replace(value, places=places, preferred=frozenset(kind for kind, _ in places)) if places else value
    )


def filled(value: Optional, like: Optional) -> Optional:
    """What a branch gives, with zeros for what it does not have and `like` has."""
    return dataclasses.replace(like, choices={**zeros_like(like).choices, **value.choices}, is_there=value.is_there)


def zeros_like(held: Optional) -> Optional:
    """Zeros in the place of its values, none where it has none."""
    zeros = {
        kind: jax.tree.map(lambda part: jnp.zeros(part.shape, part.dtype), parts)
        for kind, parts in held.choices.items()
    }  # fmt: skip
    return dataclasses.replace(held, choices=zeros)


def _has_value(attrs: Any, held: Optional) -> Any:
    return held.is_there


RULES = {
    "OptionalNone": Rule(_none),
    "OptionalFromValue": Rule(_of, rows=_of, lists=True),
    "OptionalGetValue": Rule(_value),
    "OptionalHasValue": Rule(_has_value),
}
