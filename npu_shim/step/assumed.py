"""What a step takes for granted of sizes that depend on data, where nothing shows it, and the session runs it else.

    loss = pairs - others                     of as many columns, not one of them with each of the others: no gradient
                                              is added up
    tf.pad(rows, [[0, max(8 - count, 0)]])    8 rows: there are not more
    tf.concat([the boxes of level 2, those of level 3, those of level 4], 0)    as many as there are boxes
    tf.dynamic_stitch([places of some rows], [rows])    the last place is one of them

Each of these is noted as `checks` are. Of two numbers of rows alone nothing is taken for granted but what TensorFlow
asks for: they are equal, or one is 1. Where no session stands behind a step, nothing of it is taken for granted.

    the largest of equal shapes, one of each iteration of a loop: the loop runs at all

is noted as `rooms` are where no session stands behind the step.
"""

from __future__ import annotations

import math
from typing import Any, Mapping, Sequence

import jax.numpy as jnp
import numpy as np

from npu_shim.step import beside, checks, paddings, rows, sizes
from npu_shim.step.containers import rooms
from npu_shim.step.control_flow import counted, trips
from npu_shim.step.frames import value_source
from npu_shim.step.graph import Node
from npu_shim.step.masks import cleared
from npu_shim.step.schedule import Loop
from npu_shim.step.values import Dims, Rows, Size, is_known, is_tensor, whole


def settled(scope: Any, node: Node, values: Sequence[Any]) -> Sequence[Any]:
    """The inputs of a node, with what is taken for granted of them."""
    if node.op != "BroadcastGradientArgs" or not all(isinstance(value, Dims) for value in values):
        return values
    one, other = values
    if sizes.are_of_rows(one.sizes, other.sizes):
        beside.require_as_many(scope, node, [one.sizes[0].count, other.sizes[0].count], True)
        return values
    if scope.run.told is None:
        return values
    parts = list(other.sizes)
    for at in range(1, 1 + min(len(one.sizes), len(parts))):
        if isinstance(one.sizes[-at], Size) and isinstance(parts[-at], Size):
            parts[-at] = _same(scope, node, one.sizes[-at], parts[-at])
    return [one, other._replace(sizes=tuple(parts))]


def filled(scope: Any, node: Node, values: Sequence[Any], result: Any) -> Any:
    """Rows that are padded up to a number of them."""
    if scope.run.told is None or node.op not in paddings.OPS or not isinstance(result, Rows):
        return result
    (_, after), *_ = paddings.pairs(values[1])
    number = after.fills if isinstance(after, Size) else None
    if number is None or not 0 <= number <= result.array.shape[0]:
        return result
    rooms.require_where(scope, node, result.count == np.int32(number), checks.KEY)
    return result.array[:number]


def parted(scope: Any, node: Node, values: Sequence[Any], result: Any) -> Any:
    """Parts of a tensor by what it is equal to, one behind the other: all of it."""
    size = _parted(scope, values[:-1]) if node.op == "ConcatV2" and scope.run.told is not None else None
    if size is None or not isinstance(result, Rows) or result.array.shape[0] < size or whole(values[-1]):
        return result
    rooms.require_where(scope, node, result.count == np.int32(size), checks.KEY)
    return result.array[:size]


def _parted(scope: Any, parts: Sequence[Any]) -> int | None:
    """How many elements a tensor has of which these are the parts that equal one number each; None for others."""
    wheres = ((scope.values.get(n.name), n) for n in scope.nodes.values() if n.op == "Where")
    places = {id(value.count): n for value, n in wheres if isinstance(value, Rows)}
    chosen = [places.get(id(part.count)) if isinstance(part, Rows) else None for part in parts]
    conditions = [scope.nodes[one.inputs[0][0]] for one in chosen if one is not None]
    if len(conditions) < len(parts) or any(condition.op != "Equal" for condition in conditions):
        return None
    sources = {condition.inputs[0] for condition in conditions}
    numbers = [scope.value(scope.raw(condition.inputs[1])) for condition in conditions]
    if len(sources) > 1 or not all(is_known(n) and np.ndim(n) == 0 for n in numbers):
        return None
    value = scope.value(scope.raw(sources.pop()))
    differ = len({number.item() for number in numbers}) == len(numbers)
    return math.prod(value.shape) if differ and is_tensor(value) else None


def stitched(scope: Any, node: Node, values: Sequence[Any]) -> None:
    """Rows that DynamicStitch puts in places: they are all parts of a tensor, of which the last row is there."""
    if node.op not in ("DynamicStitch", "ParallelDynamicStitch") or _are_all_parts(scope, node):
        return
    indices = values[: len(values) // 2]
    places = [cleared(part, -1) for part in indices]
    last = jnp.max(jnp.concatenate([jnp.ravel(jnp.asarray(part)) for part in places]), initial=-1)
    key = rooms.KEY if scope.run.told is None else checks.KEY
    rooms.require_where(scope, node, last == rows.stitched_size(indices) - 1, key)


def _are_all_parts(scope: Any, node: Node) -> bool:
    """Whether the places are all outputs of one DynamicPartition of the numbers of rows."""
    sources = [value_source(source, scope.nodes) for source in node.inputs[: len(node.inputs) // 2]]
    first = scope.nodes[sources[0][0]]
    if first.op != "DynamicPartition" or {name for name, _ in sources} != {first.name}:
        return False
    numbers = scope.value(scope.raw(first.inputs[0]))
    is_whole = is_known(numbers) and np.ndim(numbers) == 1 and np.array_equal(numbers, np.arange(numbers.size))
    return is_whole and sorted(at for _, at in sources) == list(range(first.attrs["num_partitions"]))


def maxima(scope: Any, loop: Loop, start: Mapping[str, Any], last: Mapping[str, Any]) -> dict[str, Any]:
    """Merge of a variable -> the known value that it has after each iteration, where a loop may not run at all.

    It is the largest so far of what is the same in each iteration, as the shape of a sparse gradient is.

    Args:
        scope: the scope in which the loop is run.
        loop: a loop.
        start: Merge of a variable -> its first value.
        last: the same, its last value.
    """
    parts = {variable.merge: counted.behind(loop, variable.following)[0] for variable in loop.variables}
    if not any(_is_maximum(loop, name, merge) for merge, name in parts.items()):
        return {}
    settled = trips.settled(loop, scope, start, scope.table)
    values = {merge: value for merge, value in settled.items() if _is_maximum(loop, parts[merge], merge)}
    key = rooms.KEY if scope.run.told is None else checks.KEY
    for merge, value in values.items():
        rooms.require(scope.run, jnp.all(last[merge] == value), key)
    return values


def _is_maximum(loop: Loop, name: str, merge: str) -> bool:
    """Whether a node of a loop gives the larger one of a loop variable and something else."""
    node = loop.nodes.get(name)
    if node is None or node.op != "Maximum":
        return False
    return (merge, 0) in [counted.behind(loop, source) for source in node.inputs]


def _same(scope: Any, node: Node, one: Size, other: Size) -> Size:
    """A Size that another one is equal to."""
    if one.count is not other.count:
        rooms.require_where(scope, node, one.count == other.count, checks.KEY)
    return one
