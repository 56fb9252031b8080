"""Connectionist temporal classification: losses by the forward recursion over labels with blanks between them."""

from __future__ import annotations

from typing import Any, Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from npu_shim.step.masks import array_of, masked
from npu_shim.step.rules.table import Attrs, Rule
from npu_shim.step.values import Rows, traced

NEVER = np.float32(-1e30)  # the logarithm of what does not happen; finite, so that gradients are


def _dense(indices: Any, values: Any, batch: int, room: int) -> tuple[Any, Any]:
    """(Labels int32 [batch, room], their number in each row) of a SparseTensor, whose rows data may count."""
    values, rows = traced(array_of(values)), traced(array_of(indices))[:, 0].astype(np.int32)
    if isinstance(indices, Rows):
        rows = masked(rows, indices.count, batch)
    first = jnp.searchsorted(rows, rows).astype(np.int32)
    columns = jnp.arange(rows.shape[0], dtype=np.int32) - first  # the kernel takes no notice of gaps
    labels = jnp.zeros((batch, room), np.int32).at[rows, columns].set(values.astype(np.int32), mode="drop")
    return labels, jnp.zeros(batch, np.int32).at[rows].add(np.int32(1), mode="drop")


def _without_blanks(labels: Any, counts: Any, blank: int) -> Any:
    """How many labels stand in front of blanks, and of what is larger, at the end of each row."""
    return jnp.sum((np.arange(labels.shape[1], dtype=np.int32) < counts[:, None]) & (labels < blank), 1, dtype=np.int32)


def _collapsed(labels: Any, counts: Any) -> tuple[Any, Any]:
    """The same without labels that follow an equal one."""
    batch, room = labels.shape
    before = jnp.pad(labels, [(0, 0), (1, 0)], constant_values=-1)[:, :-1]
    stays = (labels != before) & (np.arange(room, dtype=np.int32) < counts[:, None])
    places = jnp.where(stays, jnp.cumsum(stays, 1, dtype=np.int32) - np.int32(1), np.int32(room))
    rows = np.arange(batch)[:, None]
    return jnp.zeros_like(labels).at[rows, places].set(labels, mode="drop"), jnp.sum(stays, 1, dtype=np.int32)


def _losses(logits: Any, labels: Any, counts: Any, lengths: Any, blank: int, merges: bool) -> Any:
    """Minus the logarithm of each row's probability; logits [time, batch, classes]."""
    logs = jax.nn.log_softmax(logits, -1)
    batch, room = labels.shape
    states = jnp.full((batch, 2 * room + 1), blank, np.int32).at[:, 1::2].set(labels)
    is_label = np.arange(2 * room + 1) % 2 == 1
    before = jnp.pad(states, [(0, 0), (2, 0)], constant_values=-1)[:, :-2]
    skips = is_label & (np.arange(2 * room + 1) > 1) & ((states != before) | np.bool_(not merges))
    stays = is_label & np.bool_(not merges)  # a label twice in a row is two labels then
    first = jnp.full((batch, 2 * room + 1), NEVER).at[:, :2].set(
        jnp.take_along_axis(logs[0], states[:, :2], -1)
    )  # fmt: skip

    def step(alpha: Any, given: Any) -> Any:
        at, log = given
        one = jnp.pad(alpha, [(0, 0), (1, 0)], constant_values=NEVER)[:, :-1]
        two = jnp.where(skips, jnp.pad(alpha, [(0, 0), (2, 0)], constant_values=NEVER)[:, :-2], NEVER)
        same = jnp.where(stays, NEVER, alpha)
        new = jax.nn.logsumexp(jnp.stack([same, one, two]), 0) + jnp.take_along_axis(log, states, -1)
        return jnp.where((at < lengths)[:, None], new, alpha), None

    alpha, _ = lax.scan(step, first, (jnp.arange(1, logs.shape[0], dtype=np.int32), logs[1:]))
    ends = jnp.stack([2 * counts, jnp.maximum(2 * counts - 1, 0)], -1)
    last = jnp.take_along_axis(alpha, ends, -1)
    is_end = counts[:, None] > np.array([-1, 0], np.int32)  # without labels there is one way only
    return -jax.nn.logsumexp(jnp.where(is_end, last, NEVER), -1)


def _loss(last_is_blank: bool) -> Callable[..., Any]:
    def loss(attrs: Attrs, logits: Any, indices: Any, values: Any, lengths: Any) -> Any:
        """CTCLoss and CTCLossV2: (the loss of each row, the gradient of the logits)."""
        logits = traced(logits)
        wide = logits.astype(np.float32)
        time, batch, classes = wide.shape
        labels, given = _dense(indices, values, batch, min(time, array_of(indices).shape[0]))
        blank = classes - 1 if last_is_blank else 0
        counts = _without_blanks(labels, given, blank if last_is_blank else classes)
        if attrs["preprocess_collapse_repeated"]:
            labels, counts = _collapsed(labels, counts)
        one = lambda x: _losses(x, labels, counts, lengths, blank, attrs["ctc_merge_repeated"])  # noqa: E731
        result, back = jax.vjp(one, wide)
        (gradient,) = back(jnp.ones_like(result))
        # else there is no way, and the gradient is that of no way
        is_possible = (result < -NEVER / 2) & (given <= lengths)
        gradient = jnp.where(is_possible[:, None], gradient, jax.nn.softmax(wide, -1))
        is_left_out = (given > lengths) & np.bool_(attrs["ignore_longer_outputs_than_inputs"])
        inside = (jnp.arange(time, dtype=np.int32)[:, None] < lengths)[:, :, None] & ~is_left_out[:, None]
        result = jnp.where(is_left_out, np.float32(0), jnp.where(is_possible, result, np.float32(np.inf)))
        return result.astype(logits.dtype), jnp.where(inside, gradient, np.float32(0)).astype(logits.dtype)

    return loss


def greedy(attrs: Attrs, inputs: Any, lengths: Any) -> Any:
    """CTCGreedyDecoder: (indices, values and shape of the labels, minus the sum of each row's largest inputs)."""
    inputs = traced(inputs)
    time, batch, classes = inputs.shape
    index = attrs.get("blank_index", -1)  # 1.15 has none
    blank = index + (classes if index < 0 else 0)
    inside = jnp.arange(time, dtype=np.int32)[:, None] < lengths
    best = jnp.argmax(inputs, 2).astype(np.int32)
    before = jnp.pad(best, [(1, 0), (0, 0)], constant_values=-1)[:-1]
    stays = inside & (best != np.int32(blank))
    if attrs["merge_repeated"]:
        stays &= best != before
    stays, best = stays.T, best.T
    columns = (jnp.cumsum(stays, 1, dtype=np.int32) - np.int32(1)).reshape(-1)
    order = jnp.argsort(~stays.reshape(-1), stable=True)
    count = jnp.sum(stays, dtype=np.int32)
    rows = np.repeat(np.arange(batch), time)
    indices = jnp.stack([jnp.asarray(rows), columns.astype(np.int64)], -1)[order]
    shape = jnp.stack([jnp.int64(batch), jnp.max(jnp.sum(stays, 1, dtype=np.int64), initial=np.int64(0))])
    total = -jnp.sum(jnp.where(inside, jnp.max(inputs, 2), np.zeros((), inputs.dtype)), 0)
    return Rows(indices, count), Rows(best.reshape(-1)[order].astype(np.int64), count), shape, total[:, None]


_LOSSES = {"CTCLoss": _loss(True), "CTCLossV2": _loss(False)}
RULES = {**{op: Rule(loss, rows=loss) for op, loss in _LOSSES.items()}, "CTCGreedyDecoder": Rule(greedy)}
