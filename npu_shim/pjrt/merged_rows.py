"""Rows that are merged of [time, batch, ...] stand batch by batch on several devices, which divide them. Needs JAX.

    [t, b, h] -> reshape [t * b, h] -> product, loss, ..               each device would gather and compute all rows
    [t, b, h] -> transpose, reshape [b * t, h] -> product, loss, ..    each computes the rows of its batches

Only the order of the rows is another one, which no row's values depend on, and sums over rows but by rounding. So all
that has such rows is looked for, from reshape to reshape; where something knows rows by their number (a feed or a fetch
of them, an iota, a sort, a loop), the program stays as it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Callable, Collection, Iterable, Iterator, List, Mapping, Sequence, Tuple

from npu_shim.pjrt import artifacts
from npu_shim.pjrt.manifest import Tensor
from npu_shim.pjrt.placement import Placement

Place = Tuple[Any, int]  # an MLIR value and one of its dimensions
Group = List[Place]  # dimensions of an operation's operands and results that are the same
ELEMENTWISE = {
    "stablehlo." + name for name in (
        "abs", "add", "and", "cbrt", "ceil", "clamp", "compare", "convert", "cosine", "divide", "exponential",
        "exponential_minus_one", "floor", "is_finite", "log", "log_plus_one", "logistic", "maximum", "minimum",
        "multiply", "negate", "not", "or", "power", "remainder", "round_nearest_afz", "round_nearest_even", "rsqrt",
        "select", "sign", "sine", "sqrt", "subtract", "tanh", "xor",
    )
} | {"chlo.erf"}  # fmt: skip
SUMS = {"stablehlo." + name for name in ("add", "maximum", "minimum", "multiply", "and", "or")}


class Refused(Exception):
    """Something knows rows by their number."""


@dataclass
class Reached:
    """What has the rows of a merge.

    Attributes:
        merges: what reshapes make of two dimensions, and which dimension that is.
        splits: of what reshapes make two dimensions, the result and the first of these.
        outside: the arguments of the function that have them, and the operands of its return, with their dimension.
    """

    merges: list[Place] = field(default_factory=list)
    splits: list[Place] = field(default_factory=list)
    outside: list[tuple[str, int, int]] = field(default_factory=list)


def for_devices(artifact: bytes, arguments: Sequence[Tensor], placement: Placement) -> bytes:
    """Returns a program whose merged rows stand batch by batch.

    Args:
        artifact: bytes of a StableHLO portable artifact.
        arguments: what it takes.
        placement: of the devices that run it.
    """
    from jax.interpreters import mlir
    from jaxlib.mlir import ir

    batches = {one.shape[0] for one in arguments if one.kind == "feed" and placement.splits(one.shape)}
    if not batches:
        return artifact
    with mlir.make_ir_context() as context, context, ir.Location.unknown():
        module = artifacts.parsed(artifact)
        functions = {artifacts.name(one): one for one in artifacts.functions(module)}
        main = functions["main"].regions[0].blocks[0]
        merges = [one.operation for one in main.operations if _merged_batch(one.operation, batches) is not None]
        done: list[Any] = []  # results of reshapes
        for one in merges:
            if one.results[0] not in done:
                reached = _of_rows(one, _merged_batch(one, batches) or 0, functions)
                done += [value for value, _ in reached.merges]
                _edit(ir, reached)
        return artifacts.portable(module, artifacts.newest()) if done else artifact


def _merged(one: Any) -> Iterator[tuple[int, tuple[int, ...]]]:
    """(first of two dimensions that a reshape makes one, their sizes); of the other way round, those of its result."""
    before, after = _sizes(one.operands[0]), _sizes(one.results[0])
    if len(before) < len(after):
        before, after = after, before
    for at in range(len(before) - 1):
        if (*before[:at], before[at] * before[at + 1], *before[at + 2 :]) == after and min(before[at : at + 2]) > 1:
            yield at, before[at : at + 2]


def _merged_batch(one: Any, batches: Collection[int]) -> int | None:
    """The first of two dimensions that an operation merges, of which the second is a batch; None for others."""
    if one.name != "stablehlo.reshape" or len(_sizes(one.operands[0])) <= len(_sizes(one.results[0])):
        return None
    numbers = (at for at, (first, second) in _merged(one) if second in batches and first not in batches)
    return next(numbers, None)


def _of_rows(merge: Any, at: int, functions: Mapping[str, Any]) -> Reached:
    """What has the rows of a merge; nothing where something knows rows by their number."""
    try:
        reached = _reached([(merge.results[0], at)], functions, _sizes(merge.operands[0])[at : at + 2])
    except Refused:
        return Reached()
    return Reached() if reached.outside else reached


def _reached(starts: Sequence[Place], functions: Mapping[str, Any], sizes: tuple[int, ...]) -> Reached:
    """Follows rows in both directions, from some values of a function.

    Args:
        starts: values and their dimension of rows.
        functions: of the program, by name.
        sizes: of the two dimensions that are merged.

    Raises:
        Refused: something knows rows by their number.
    """
    reached, pending, seen = Reached(), list(starts), set()
    while pending:
        place = pending.pop()
        if place in seen:
            continue
        seen.add(place)
        for operation in _operations(place, reached):
            pending += _others(operation, place, functions, sizes, reached)
    return reached


def _operations(place: Place, reached: Reached) -> Iterator[Any]:
    """The operations of which a value is a result or an operand; notes those that are outside of the function."""
    value, dim = place
    if hasattr(value.owner, "operands"):
        yield value.owner.operation
    else:
        reached.outside.append(("argument", value.arg_number, dim))
    for use in value.uses:
        if use.owner.name == "func.return":
            reached.outside.append(("result", use.operand_number, dim))
        else:
            yield use.owner.operation


def _others(
    one: Any, place: Place, functions: Mapping[str, Any], sizes: tuple[int, ...], reached: Reached
) -> Iterable[Place]:
    """The other places of an operation that have the same rows."""
    if one.name == "func.call":
        return _of_call(one, place, functions, sizes)
    groups = [group for group in GROUPS.get(one.name, _of_elementwise)(one) if place in group]
    if groups:
        return [other for group in groups for other in group]
    if one.name != "stablehlo.reshape":
        raise Refused
    value, dim = place
    merges = len(_sizes(one.operands[0])) > len(_sizes(one.results[0]))
    if (dim, sizes) not in _merged(one) or merges != (value == one.results[0]):
        raise Refused
    (reached.merges if merges else reached.splits).append((one.results[0], dim))
    return ()


def _of_call(one: Any, place: Place, functions: Mapping[str, Any], sizes: tuple[int, ...]) -> Iterator[Place]:
    called = functions[str(one.attributes["callee"]).lstrip("@")].regions[0].blocks[0]
    last = list(called.operations)[-1].operation
    value, dim = place
    pairs = [*zip(one.operands, called.arguments), *zip(one.results, last.operands)]
    inside = _reached([(inner, dim) for outer, inner in pairs if outer == value], functions, sizes)
    if inside.merges or inside.splits:
        raise Refused
    for kind, number, at in inside.outside:
        yield (one.operands if kind == "argument" else one.results)[number], at


def _edit(ir: Any, reached: Reached) -> None:
    for value, at in reached.merges:
        one = value.owner.operation
        one.operands[0] = _swapped(ir, one.operands[0], at, ir.InsertionPoint(one), one.location)
    for value, at in reached.splits:
        one, kind = value.owner.operation, value.type
        turned = ir.RankedTensorType.get(_swap(list(kind.shape), at), kind.element_type)
        where = {"ip": ir.InsertionPoint(one), "loc": one.location}
        first = ir.Operation.create("stablehlo.reshape", [turned], [one.operands[0]], **where)
        value.replace_all_uses_with(_swapped(ir, first.results[0], at, where["ip"], where["loc"]))
        one.erase()


def _swapped(ir: Any, value: Any, at: int, ip: Any, loc: Any) -> Any:
    """A value with two dimensions in the other order."""
    order = _swap(list(range(value.type.rank)), at)
    kind = ir.RankedTensorType.get([value.type.shape[dim] for dim in order], value.type.element_type)
    said = {"permutation": ir.DenseI64ArrayAttr.get(order)}
    return ir.Operation.create("stablehlo.transpose", [kind], [value], said, ip=ip, loc=loc).results[0]


def _swap(values: list[Any], at: int) -> list[Any]:
    values[at], values[at + 1] = values[at + 1], values[at]
    return values


# -- which dimensions of an operation's operands and results are the same ----------------------------------------------


def _sizes(value: Any) -> tuple[int, ...]:
    return tuple(value.type.shape)


def _same(values: Iterable[Any], without: Collection[int] = ()) -> list[Group]:
    """A group of each dimension of values of one rank."""
    values = list(values)
    return [[(value, dim) for value in values] for dim in range(values[0].type.rank) if dim not in without]


def _of_elementwise(one: Any) -> list[Group]:
    if one.name not in ELEMENTWISE:
        return []
    rank = one.results[0].type.rank
    return _same(value for value in (*one.results, *one.operands) if value.type.rank == rank)


def _of_barrier(one: Any) -> list[Group]:
    return [group for pair in zip(one.operands, one.results) for group in _same(pair)]


def _of_broadcast(one: Any) -> list[Group]:
    given, result = one.operands[0], one.results[0]
    dims = list(one.attributes["broadcast_dimensions"])
    groups = [[(result, dim)] for dim in range(result.type.rank)]
    for dim, to in enumerate(dims):
        if given.type.shape[dim] == result.type.shape[to]:
            groups[to].append((given, dim))
    return groups


def _of_transpose(one: Any) -> list[Group]:
    order = list(one.attributes["permutation"])
    return [[(one.operands[0], dim), (one.results[0], to)] for to, dim in enumerate(order)]


def _of_reshape(one: Any) -> list[Group]:
    """Dimensions with as many elements before them and behind them."""
    given, result = one.operands[0], one.results[0]
    return [
        [(given, dim), (result, to)]
        for dim, size in enumerate(_sizes(given)) for to, same in enumerate(_sizes(result))
        if size == same > 1 and math.prod(_sizes(given)[:dim]) == math.prod(_sizes(result)[:to])
    ]  # fmt: skip


def _of_constant(one: Any) -> list[Group]:
    return _same(one.results) if getattr(one.attributes["value"], "is_splat", False) else []


def _of_iota(one: Any) -> list[Group]:
    return _same(one.results, [int(one.attributes["iota_dimension"])])


def _of_reduce(one: Any) -> list[Group]:
    count = len(one.results)
    given, dims = list(one.operands)[:count], list(one.attributes["dimensions"])
    kept = [dim for dim in range(given[0].type.rank) if dim not in dims]
    groups = [
        [*((value, dim) for value in given), *((value, to) for value in one.results)] for to, dim in enumerate(kept)
    ]
    inner = [operation.operation.name for operation in one.regions[0].blocks[0].operations]
    return groups + ([[(given[0], dim)] for dim in dims] if len(inner) == 2 and inner[0] in SUMS else [])


def _of_dot(one: Any) -> list[Group]:
    from jaxlib.mlir.dialects import stablehlo as dialect

    numbers, (left, right) = dialect.DotDimensionNumbers(one.attributes["dot_dimension_numbers"]), one.operands
    batch = list(zip(numbers.lhs_batching_dimensions, numbers.rhs_batching_dimensions))
    contracted = list(zip(numbers.lhs_contracting_dimensions, numbers.rhs_contracting_dimensions))
    free = [
        [(value, dim)] for side, value in enumerate((left, right)) for dim in range(value.type.rank)
        if dim not in [pair[side] for pair in batch + contracted]
    ]  # fmt: skip
    kept = [[(left, a), (right, b)] for a, b in batch] + free
    summed = [[(left, a), (right, b)] for a, b in contracted]
    return summed + [[*group, (one.results[0], to)] for to, group in enumerate(kept)]


def _of_slice(one: Any) -> list[Group]:
    pair = one.operands[0], one.results[0]
    return _same(pair, [dim for dim in range(pair[0].type.rank) if _sizes(pair[0])[dim] != _sizes(pair[1])[dim]])


def _of_concatenate(one: Any) -> list[Group]:
    return _same([*one.operands, one.results[0]], [int(one.attributes["dimension"])])


def _of_gather(one: Any) -> list[Group]:
    """A lookup of whole rows of a table, by a number each."""
    ids = one.operands[1]
    windows = ", ".join(map(str, range(1, one.results[0].type.rank)))
    form = "offset_dims = [%s], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>" % windows
    is_lookup = form in str(one.attributes["dimension_numbers"]) and next(iter(one.attributes["slice_sizes"])) == 1
    return [[(ids, 0), (one.results[0], 0)]] if is_lookup else []


def _of_scatter(one: Any) -> list[Group]:
    """A sum of whole rows, by a number each."""
    return [[(one.operands[1], 0), (one.operands[2], 0)]] if artifacts.adds_rows(one) else []


GROUPS: Mapping[str, Callable[[Any], list[Group]]] = {
    "stablehlo.optimization_barrier": _of_barrier,
    "stablehlo.broadcast_in_dim": _of_broadcast,
    "stablehlo.transpose": _of_transpose,
    "stablehlo.reshape": _of_reshape,
    "stablehlo.constant": _of_constant,
    "stablehlo.iota": _of_iota,
    "stablehlo.reduce": _of_reduce,
    "stablehlo.dot_general": _of_dot,
    "stablehlo.slice": _of_slice,
    "stablehlo.concatenate": _of_concatenate,
    "stablehlo.gather": _of_gather,
    "stablehlo.scatter": _of_scatter,
}
