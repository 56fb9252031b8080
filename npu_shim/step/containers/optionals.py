"""Optionals, in which a branch of a conditional of TensorFlow 2 keeps for its gradient what it computes.

Where another branch keeps none, or a value of another kind, in the same place, what the branch does not have is zeros
that nothing reads: the gradient's branches are chosen by the same predicate.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from npu_shim.step.refusals import Unsupported
from npu_shim.step.rules.table import Rule
from npu_shim.step.values import traced


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Optional:
    """Values, or none.

    Attributes:
        choices: what kind of values it may have (`_kind`) -> these values.
        is_there: bool, whether it has any.
    """

    choices: dict[str, tuple[Any, ...]]
    is_there: Any


def _kind(parts: tuple[Any, ...]) -> str:
    return "%s %s" % (jax.tree.structure(parts), [(part.dtype.name, part.shape) for part in jax.tree.leaves(parts)])


def _none(attrs: Any) -> Optional:
    return Optional({}, np.bool_(False))


def _of(attrs: Any, *values: Any) -> Optional:
    parts = tuple(map(traced, values))
    return Optional({_kind(parts): parts}, np.bool_(True))


def _value(attrs: Any, held: Optional) -> Any:
    asked = list(zip(attrs["output_types"], attrs["output_shapes"]))
    fitting = [parts for parts in held.choices.values() if _fits(parts, asked)]
    if len(fitting) != 1:
        raise Unsupported("its value is one of %d kinds, expected one" % len(fitting))
    (parts,) = fitting
    return parts[0] if len(parts) == 1 else parts


def _fits(parts: tuple[Any, ...], asked: list[Any]) -> bool:
    return len(parts) == len(asked) and all(_is_like(part, *of) for part, of in zip(parts, asked))


def _is_like(part: Any, dtype: Any, shape: Any) -> bool:
    if dtype == "variant" or not hasattr(part, "shape"):
        return dtype == "variant" and not hasattr(part, "shape")
    if part.dtype != dtype or shape is None:
        return bool(part.dtype == dtype)
    return len(shape) == part.ndim and all(want in (-1, size) for want, size in zip(shape, part.shape))


def joined(values: Sequence[Optional]) -> Optional:
    """What branches give in one place, as one would give it that has values of all kinds."""
    choices: dict[str, Any] = {}
    for value in values:
        choices.update(value.choices)
    return Optional(choices, values[0].is_there)


def filled(value: Optional, like: Optional) -> Optional:
    """What a branch gives, with zeros for what it does not have and `like` has."""
    return Optional({**zeros_like(like).choices, **value.choices}, value.is_there)


def zeros_like(held: Optional) -> Optional:
    """Zeros in the place of its values, none where it has none."""
    zeros = {
        kind: jax.tree.map(lambda part: jnp.zeros(part.shape, part.dtype), parts)
        for kind, parts in held.choices.items()
    }  # fmt: skip
    return Optional(zeros, held.is_there)


def _has_value(attrs: Any, held: Optional) -> Any:
    return held.is_there


RULES = {
    "OptionalNone": Rule(_none),
    "OptionalFromValue": Rule(_of, rows=_of, lists=True),
    "OptionalGetValue": Rule(_value),
    "OptionalHasValue": Rule(_has_value),
}
