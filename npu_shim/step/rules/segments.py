"""Segments of rows by sorted ids: as many as the last id says.

Of as many rows, or ids, as data says, those that are not there belong to no segment.
"""

from __future__ import annotations

from typing import Any, Callable

import jax
import jax.numpy as jnp
import numpy as np

from npu_shim.step.masks import array_of, live
from npu_shim.step.platforms import summed_widely
from npu_shim.step.rules.table import SEGMENTS, Attrs, Rule
from npu_shim.step.values import traced

EMPTY = {"Sum": 0, "Prod": 1, "Max": 0, "Min": 0}  # what a segment without rows is


def count_of(attrs: Attrs, ids: Any) -> int:
    """How many segments there are by their sorted ids."""
    told = attrs.get(SEGMENTS)
    return int(ids[-1]) + 1 if told is None and ids.size else told or 0


def _reduced(kind: str) -> Callable[..., Any]:
    method = getattr(jax.ops, "segment_" + kind.lower())

    def reduced(attrs: Attrs, x: Any, ids: Any) -> Any:
        count = count_of(attrs, ids)
        result = method(traced(x), jnp.asarray(ids), count, indices_are_sorted=True)
        present = jnp.zeros(count, bool).at[ids].set(True, mode="drop").reshape((-1,) + (1,) * (x.ndim - 1))
        return jnp.where(present, result, np.array(EMPTY[kind], x.dtype))

    return summed_widely(reduced) if kind in ("Sum", "Prod") else reduced


@summed_widely
def _mean(attrs: Attrs, x: Any, ids: Any) -> Any:
    """SegmentMean."""
    count = count_of(attrs, ids)
    total = jax.ops.segment_sum(traced(x), jnp.asarray(ids), count)
    sizes = jnp.maximum(jnp.zeros(count, x.dtype).at[ids].add(np.ones((), x.dtype), mode="drop"), np.ones((), x.dtype))
    sizes = jnp.broadcast_to(sizes.reshape((-1,) + (1,) * (x.ndim - 1)), total.shape)
    return jax.lax.div(total, sizes)  # of whole numbers towards zero


def _rule(reduced: Callable[..., Any]) -> Rule:
    def of_rows(attrs: Attrs, x: Any, ids: Any) -> Any:
        count = count_of(attrs, ids)
        most = min(array_of(value).shape[0] for value in (x, ids))
        return reduced({**attrs, SEGMENTS: count}, array_of(x)[:most], live(ids, count, x)[:most])

    return Rule(reduced, rows=of_rows)


RULES = {"SegmentMean": _rule(_mean), **{"Segment" + kind: _rule(_reduced(kind)) for kind in EMPTY}}
