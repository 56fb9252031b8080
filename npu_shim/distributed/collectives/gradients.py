"""Gradients reduced over a group: dense ones in buckets, sparse ones as slices or dense, whichever is less to move."""

from __future__ import annotations

from typing import Any, Sequence

import tensorflow.compat.v1 as tf

from npu_shim.distributed.collectives import fused, reductions, slices
from npu_shim.distributed.job import ranks, settings
from npu_shim.rewriter.errors import ConfigError

LOW = (tf.float16, tf.bfloat16)


def reduced(
    gradients: Sequence[Any],
    names: Sequence[str],
    reduction: str = "mean",
    group: str = ranks.WORLD,
    fusion: int = fused.BY_STRATEGY,
) -> list[Any]:
    """Returns each gradient reduced over the group.

    Args:
        gradients: list of Tensor, IndexedSlices or None; a None stays.
        names: their variables' names, which tell the ranks which gradients belong together.
        reduction: "mean", or one of hccl's.
        group: str.
        fusion: as in `fused.moved`.

    Returns:
        list in the order of `gradients`: Tensors in their dtypes (a mean of whole numbers is float64); IndexedSlices
        with the slices of all ranks, or with one slice for each row that any rank has.

    Raises:
        ConfigError: another reduction of IndexedSlices than a sum or a mean.
    """
    done = list(gradients)
    sparse = [at for at, gradient in enumerate(done) if isinstance(gradient, tf.IndexedSlices)]
    if sparse and reduction not in ("sum", "mean"):
        raise ConfigError("reduction '%s' of IndexedSlices: expected 'sum' or 'mean'" % reduction)
    if ranks.get_rank_size(group) == 1:
        return done
    laid = [at for at in sparse if slices.is_dense_cheaper(done[at], ranks.get_rank_size(group))]
    gathered = [at for at in sparse if at not in laid]
    dense = [at for at, gradient in enumerate(done) if gradient is not None and at not in sparse]
    tensors = [(tf.convert_to_tensor(done[at]), names[at]) for at in dense]
    for at in laid:
        tensors += zip(slices.laid_out(done[at]), (names[at], names[at] + " rows"))

    def collective(flat, key):
        return _reduced(flat, reduction, group, key)

    kind = "%s by way of %s" % (reduction, settings.way())
    moved = fused.moved(
        [tensor for tensor, _ in tensors], [name for _, name in tensors], collective, kind, group, fusion
    )
    _put(done, dense, moved)
    whole, counts = moved[len(dense) :: 2], moved[len(dense) + 1 :: 2]
    _put(done, laid, [slices.picked(*picked) for picked in zip(whole, counts, (done[at] for at in laid))])
    sums = slices.gathered([done[at] for at in gathered], [names[at] for at in gathered], group)
    _put(done, gathered, [_divided(total, reduction, group) for total in sums])
    return done


def _put(done, places, values):
    for at, value in zip(places, values):
        done[at] = value


def _divided(gathered, reduction, group):
    if reduction == "sum":
        return gathered
    mean = gathered.values / tf.cast(ranks.get_rank_size(group), gathered.values.dtype)
    return tf.IndexedSlices(mean, gathered.indices, gathered.dense_shape)


def _reduced(flat, reduction, group, key):
    if reduction == "mean" and (flat.dtype.is_integer or flat.dtype.is_bool):
        flat = tf.cast(flat, tf.float64)  # a sum of narrow ones would be beyond their dtype
    total = reductions.allreduce(_as_sent(flat), "sum" if reduction == "mean" else reduction, group, key)
    if reduction != "mean":
        return tf.cast(total, flat.dtype)
    mean = total / tf.cast(ranks.get_rank_size(group), total.dtype)
    return tf.cast(mean, flat.dtype)


def _as_sent(flat):
    """Returns a gradient in the dtype in which it travels and is summed."""
    wanted = settings.gradient_dtype()
    if wanted != "own" and flat.dtype == tf.float32:
        flat = tf.cast(flat, wanted)
    if flat.dtype not in LOW:
        return flat
    return tf.cast(flat, tf.float32) if settings.sums_are_float32() else flat


def scattered(row: tf.Tensor, group: str, key: int) -> tf.Tensor:
    """Returns this rank's part of the sum of the ranks' rows: [n] of [ranks * n]."""
    return tf.cast(reductions.reduce_scatter(_as_sent(row), "sum", group, key), row.dtype)
