"""Weight-update sharding: each rank updates the variables that it owns and sends them to the others.

The sums of its variables' gradients reach each rank by reduce_scatter, its updated variables reach the others by
allgather. Slots (momentum, ...) of the other ranks' variables exist under their usual names and are not updated, so
that a checkpoint fits with and without sharding; `collecting` fetches their values before this process saves.
"""

from __future__ import annotations

from typing import Any, Sequence

import tensorflow.compat.v1 as tf

from npu_shim.distributed.collectives import buckets, gradients, keys, reductions
from npu_shim.distributed.job import ranks, settings
from npu_shim.distributed.sharding import collecting, shards
from npu_shim.rewriter.errors import ConfigError

ON_DEVICES = "_npu_shim_shards_updates"  # attribute of a graph: one process's devices are to share its updates


def owners(pairs: Sequence[tuple[Any, Any]]) -> dict[str, int]:
    """Returns the rank that updates each variable, by name, about as many bytes for each; the same on all ranks.

    Args:
        pairs: list of (gradient or None, variable).

    Raises:
        ConfigError: fewer gradients than ranks, or a variable whose shape is not known before the graph runs.
    """
    size, given = ranks.world_size(), [pair for pair in pairs if pair[0] is not None]
    if size > len(given):
        raise ConfigError("is_weight_update_sharding: %d gradients for RANK_SIZE=%d ranks" % (len(given), size))
    for _, variable in given:
        if not variable.shape.is_fully_defined():
            raise ConfigError("is_weight_update_sharding: the shape of %s is not known" % variable.name)
    members = [buckets.Member(variable.name, variable.dtype.base_dtype.name, None) for _, variable in given]
    shards.add_grads_and_vars([given[at] for at in buckets.ordered(members)], size)
    return {item.var.name: item.root_rank_id for item in shards.get_all_grad_item()}


def own(pairs: Sequence[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Returns the pairs that this rank updates; errors as `owners`."""
    of = owners(pairs)
    return [pair for pair in pairs if of.get(pair[1].name) == ranks.world_rank()]


class Layout:
    """Where the variables of one dtype lie in a row of equal parts, one for each rank.

    variables a (rank 0, 3 elements), b (rank 1, 2 elements) -> a a a | b b 0

    Args:
        variables: list of variables of one dtype.
        of: their owners by name.
    """

    def __init__(self, variables: Sequence[Any], of: dict[str, int]) -> None:
        self.by_rank: list[list[Any]] = [[] for _ in range(ranks.world_size())]
        for variable in sorted(variables, key=lambda variable: buckets.natural(variable.name)):
            self.by_rank[of[variable.name]].append(variable)
        self.part = max(sum(map(_elements, own)) for own in self.by_rank)

    def part_of(self, rank: int, tensors: dict[str, tf.Tensor], dtype: Any) -> tf.Tensor:
        """Returns a rank's part of the row from tensors by variable name: [part]."""
        own = self.by_rank[rank]
        spare = tf.zeros([self.part - sum(map(_elements, own))], dtype)
        return tf.concat([*(tf.reshape(tensors[member.name], [-1]) for member in own), spare], 0)

    def cut(self, rank: int, part: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the tensors of a rank's part by variable name."""
        own = self.by_rank[rank]
        sizes = [*map(_elements, own), self.part - sum(map(_elements, own))]
        pieces = tf.split(part, sizes, num=len(sizes))
        return {member.name: tf.reshape(piece, member.shape) for member, piece in zip(own, pieces)}


def _elements(variable):
    return int(variable.shape.num_elements())


def reduced(pairs: Sequence[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Returns the pairs with their gradients' means over the ranks.

    Those of this rank's own variables come by reduce_scatter, sparse ones by a gather. The others are means too, for
    scripts that look at all gradients (a global norm): what their owners have is gathered, only where something needs
    it. Ranks must run the same collectives whatever they own, so who needs a gradient of its own waits for the sums of
    all dtypes, and who needs another rank's waits for all that is gathered.

    Args:
        pairs: list of (gradient or None, variable).

    Raises:
        ConfigError: as `owners`.
    """
    of, rank = owners(pairs), ranks.world_rank()
    given = {variable.name: gradient for gradient, variable in pairs if gradient is not None}
    sparse = {name: gradient for name, gradient in given.items() if isinstance(gradient, tf.IndexedSlices)}
    layouts = _scattered(
        {name: gradient for name, gradient in given.items() if name not in sparse}, [v for _, v in pairs], of
    )
    done = dict(zip(sparse, gradients.reduced(list(sparse.values()), list(sparse))))
    sums = [part for _, part, _ in layouts]
    sums += [tensor for slices in done.values() for tensor in (slices.values, slices.indices)]
    rows = [reductions.allgather(part, ranks.WORLD, key) for _, part, key in layouts]
    for (layout, part, _), row in zip(layouts, rows):
        for owner, other in enumerate(tf.split(row, ranks.world_size())):
            done.update(layout.cut(owner, part if owner == rank else other))
    behind = {True: sums, False: [*sums, *rows]}
    return [
        (None if gradient is None else _behind(behind[of[variable.name] == rank], done[variable.name]), variable)
        for gradient, variable in pairs
    ]


def _scattered(dense, variables, of):
    """For each dtype of dense gradients, by name: their Layout, this rank's part of their mean, a key for all parts."""
    done, size = [], ranks.world_size()
    for dtype in sorted({tensor.dtype for tensor in dense.values()}, key=lambda dtype: dtype.name):
        layout = Layout(
            [variable for variable in variables if variable.name in dense and dense[variable.name].dtype == dtype], of
        )
        row = tf.concat([layout.part_of(number, dense, dtype) for number in range(size)], 0)
        label = keys.new("\n".join(["shards", settings.way(), keys.described(row), *sorted(dense)]))
        part = gradients.scattered(row, ranks.WORLD, keys.instance(label, 0)) / tf.cast(size, dtype)
        done.append((layout, part, keys.instance(label, 1)))
    return done


def _behind(tensors, gradient):
    """A gradient that is there when all these tensors are."""
    if not tensors:
        return gradient
    with tf.control_dependencies(tensors):
        if isinstance(gradient, tf.IndexedSlices):
            return tf.IndexedSlices(tf.identity(gradient.values), gradient.indices, gradient.dense_shape)
        return tf.identity(gradient)


def applied(optimizer: Any, pairs: Sequence[tuple[Any, Any]], global_step: Any, name: str | None) -> tf.Operation:
    """Returns the op that updates this rank's variables and then gives every rank all updated variables.

    Args:
        optimizer: the wrapped optimizer.
        pairs: list of (gradient, variable), the same variables on every rank.
        global_step: variable or None; every rank counts its own.
        name: str or None, for the wrapped optimizer.

    Raises:
        ConfigError: as `owners`.
    """
    of, rank = owners(pairs), ranks.world_rank()
    shares = [[pair for pair in pairs if of.get(pair[1].name) == number] for number in range(ranks.world_size())]
    train_ops = tf.get_collection_ref(tf.GraphKeys.TRAIN_OP)
    before = list(train_ops)
    update = optimizer.apply_gradients(shares[rank], global_step, name)
    for owner, share in enumerate(shares):
        if owner != rank:
            known = set(map(id, tf.global_variables()))
            optimizer.apply_gradients(share)  # for its slots: nothing runs this update
            collecting.note([variable for variable in tf.global_variables() if id(variable) not in known], owner)
    with tf.control_dependencies([update]):
        done = tf.group(update, *_sent([variable for _, variable in pairs if variable.name in of], of))
    train_ops[:] = [*before, done]
    return done


def _sent(variables, of):
    """Returns the assignments of the other ranks' variables, whose values their owners send."""
    rank, assigned = ranks.world_rank(), []
    for dtype in sorted({variable.dtype.base_dtype for variable in variables}, key=lambda dtype: dtype.name):
        chosen = [variable for variable in variables if variable.dtype.base_dtype == dtype]
        layout = Layout(chosen, of)
        values = {variable.name: variable.read_value() for variable in layout.by_rank[rank]}
        part = layout.part_of(rank, values, dtype)
        label = keys.new("\n".join(["updated", keys.described(part), *sorted(variable.name for variable in chosen)]))
        row = reductions.allgather(part, ranks.WORLD, keys.instance(label, 0))
        for owner, part in enumerate(tf.split(row, ranks.world_size())):
            if owner != rank:
                new = layout.cut(owner, part)
                assigned += [variable.assign(new[variable.name]).op for variable in layout.by_rank[owner]]
    return assigned
