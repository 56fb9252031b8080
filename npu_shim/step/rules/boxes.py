"""Boxes [n, 4] of (y, x) of two corners that face each other: which of those that overlap are kept."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from npu_shim.step.rules.table import Attrs, Rule
from npu_shim.step.values import Rows, traced, whole


def _overlaps(boxes: Any, number: Any) -> Any:
    """Of each box with one of them: what they share, as a part of what they cover together; 0 for one without area."""
    low, high = jnp.minimum(boxes[:, :2], boxes[:, 2:]), jnp.maximum(boxes[:, :2], boxes[:, 2:])
    areas = jnp.prod(high - low, 1)
    sides = jnp.maximum(jnp.minimum(high, high[number]) - jnp.maximum(low, low[number]), np.zeros((), boxes.dtype))
    shared = sides[:, 0] * sides[:, 1]
    together = areas + areas[number] - shared
    has_area = (areas > 0) & (areas[number] > 0)
    return jnp.where(has_area, shared / jnp.where(has_area, together, np.ones((), boxes.dtype)), 0)


def _selected(boxes: Any, scores: Any, room: int, most_overlap: Any, least_score: Any) -> tuple[Any, Any]:
    """(Numbers of the boxes, the highest scores first, int32 [room], zeros behind the last; how many)."""
    boxes, scores = traced(boxes), traced(scores)
    taken = jnp.array(-np.inf, scores.dtype)
    is_candidate = scores > (taken if least_score is None else least_score)

    def select(at: Any, state: Any) -> Any:
        numbers, count, is_left = state
        best = jnp.argmax(jnp.where(is_left, scores, taken)).astype(np.int32)
        is_more = jnp.any(is_left)
        numbers = numbers.at[at].set(jnp.where(is_more, best, np.int32(0)))
        others = jnp.arange(scores.shape[0], dtype=np.int32) != best
        stays = is_left & others & ~(_overlaps(boxes, best) > most_overlap)
        return numbers, count + is_more.astype(np.int32), jnp.where(is_more, stays, is_left)

    start = jnp.zeros(room, np.int32), jnp.int32(0), is_candidate
    numbers, count, _ = lax.fori_loop(np.int32(0), np.int32(room), select, start)
    return numbers, count


def _room(boxes: Any, most: Any) -> int:
    return max(0, min(whole(most), len(boxes)))


def select(attrs: Attrs, boxes: Any, scores: Any, most: Any, overlap: Any = None, score: Any = None) -> Any:
    """NonMaxSuppression, V2 and V3: as many as data says."""
    overlap = np.float32(attrs["iou_threshold"]) if overlap is None else overlap
    return Rows(*_selected(boxes, scores, _room(boxes, most), overlap, score))


def select_padded(attrs: Attrs, boxes: Any, scores: Any, most: Any, overlap: Any, score: Any) -> Any:
    """NonMaxSuppressionV4: (numbers, how many are there), padded with zeros if attributes say so."""
    numbers, count = _selected(boxes, scores, _room(boxes, most), overlap, score)
    if not attrs["pad_to_max_output_size"]:
        return Rows(numbers, count), count
    return jnp.pad(numbers, [(0, max(0, whole(most)) - numbers.shape[0])]), count


RULES = {
    "NonMaxSuppression": Rule(select, known=(2,)),
    "NonMaxSuppressionV2": Rule(select, known=(2,)),
    "NonMaxSuppressionV3": Rule(select, known=(2,)),
    "NonMaxSuppressionV4": Rule(select_padded, known=(2,)),
}
