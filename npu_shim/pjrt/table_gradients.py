"""Gradients of tables on several devices: a table's rows are added up once, and travel in bfloat16. Needs JAX.

    rows [1024, h] float32 -> sum [v, h] float32, exchanged; and again               the partitioner
    rows [128, h] float32 -> sum [v, h] float32 -> bfloat16, exchanged -> float32    here, on each of eight devices

An optimizer that reads such a gradient twice adds it up twice, as TensorFlow converts IndexedSlices; here once. A table
whose rows layers take in bfloat16 alone has gradients that travel in bfloat16, as those of all products do. Sums on one
device stay float32's. (Flax's Embed casts the table first, so that even the sum on one device is bfloat16's; Megatron
sends a table's gradient in the dtype of all others, the model's or float32.) Others travel in float32. So do those of a
table that is taken in float16: with the loss scale undone they may be too small for it. One device's are never changed.
"""

from __future__ import annotations

import itertools
from typing import Any, Iterator, Mapping, Sequence

from npu_shim.pjrt import artifacts
from npu_shim.pjrt.manifest import Tensor
from npu_shim.pjrt.placement import AXIS, HOSTS, RANKS, Placement

NAME = "npu_shim_table_gradient"
MOVES = {"stablehlo." + name for name in ("reshape", "transpose", "slice", "optimization_barrier")}
DEPTH = 12  # operations that lead to an index, at most
# {r}: rows of all devices, {p}: of one, {v}: rows of the table, {d}: their sizes, {n}: devices, {i}: dtype of ids
TEXT = """sdy.mesh @mesh = <[{mesh}]>
func.func private @sum(%rows: tensor<{r}x{d}xf32>, %ids: tensor<{r}x1x{i}>) -> tensor<{v}x{d}xf32> {{
%zero = stablehlo.constant dense<0.0> : tensor<bf16>
%parts = sdy.manual_computation(%rows, %ids) in_shardings=[<@mesh, [{axes}{rest}]>, <@mesh, [{axes}, {{}}]>]
    out_shardings=[<@mesh, [{axes}, {{}}{rest}]>] manual_axes={axes}
    (%own: tensor<{p}x{d}xf32>, %at: tensor<{p}x1x{i}>) {{
  %start = stablehlo.constant dense<0.0> : tensor<{v}x{d}xf32>
  %sum = "stablehlo.scatter"(%start, %at, %own) <{{scatter_dimension_numbers = {form}}}> ({{
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %c : tensor<f32>
  }}) : (tensor<{v}x{d}xf32>, tensor<{p}x1x{i}>, tensor<{p}x{d}xf32>) -> tensor<{v}x{d}xf32>
  %low = stablehlo.convert %sum : (tensor<{v}x{d}xf32>) -> tensor<{v}x{d}xbf16>
  %part = stablehlo.reshape %low : (tensor<{v}x{d}xbf16>) -> tensor<1x{v}x{d}xbf16>
  sdy.return %part : tensor<1x{v}x{d}xbf16>
}} : (tensor<{r}x{d}xf32>, tensor<{r}x1x{i}>) -> tensor<{n}x{v}x{d}xbf16>
%all = stablehlo.reduce(%parts init: %zero) applies stablehlo.add across dimensions = [0]
    : (tensor<{n}x{v}x{d}xbf16>, tensor<bf16>) -> tensor<{v}x{d}xbf16>
%wide = stablehlo.convert %all : (tensor<{v}x{d}xbf16>) -> tensor<{v}x{d}xf32>
return %wide : tensor<{v}x{d}xf32>
}}
"""


def for_devices(artifact: bytes, arguments: Sequence[Tensor], placement: Placement) -> bytes:
    """Returns a program whose tables' gradients are added up once, and travel as above.

    Args:
        artifact: bytes of a StableHLO portable artifact.
        arguments: what it takes.
        placement: of the devices that run it.
    """
    from jax.interpreters import mlir
    from jaxlib.mlir import ir

    if len(placement.devices) == 1:
        return artifact
    with mlir.make_ir_context() as context, context, ir.Location.unknown():
        module = artifacts.parsed(artifact)
        functions = {artifacts.name(one): one for one in artifacts.functions(module)}
        main = functions["main"].regions[0].blocks[0]
        tables = _tables(arguments)
        sums = [one.operation for one in main.operations if _table_of(one.operation) in tables]
        kept = _once(sums)
        changed = len(kept) < len(sums)
        for one in kept:
            of = tables[_table_of(one)]
            text = _text(one, placement)
            if text and all(_is_taken_low(main.arguments[number], functions) for number in of):
                _substitute(ir, module, one, text)
                changed = True
        return artifacts.portable(module, artifacts.newest()) if changed else artifact


def _tables(arguments: Sequence[Tensor]) -> dict[tuple[int, ...], list[int]]:
    """The numbers of the arguments that may be tables, by their shape."""
    tables: dict[tuple[int, ...], list[int]] = {}
    for number, one in enumerate(arguments):
        if one.kind == "state" and one.role == "parameter" and one.dtype == "float32" and len(one.shape) > 1:
            tables.setdefault(tuple(one.shape), []).append(number)
    return tables


def _table_of(one: Any) -> tuple[int, ...]:
    """The shape of the table whose rows an operation adds up, () for another operation."""
    if not artifacts.adds_rows(one) or not _is_zero(one.operands[0]):
        return ()
    return tuple(one.results[0].type.shape) if _dtype(one.results[0]) == "f32" else ()


def _is_zero(value: Any) -> bool:
    operation = value.owner
    if getattr(operation, "name", "") == "stablehlo.broadcast_in_dim":
        return _is_zero(operation.operands[0])
    return getattr(operation, "name", "") == "stablehlo.constant" and "dense<0.000000e+00>" in str(
        operation.attributes["value"]
    )


def _once(sums: Sequence[Any]) -> list[Any]:
    """The sums of which none adds up the same rows by the same ids as one before it, which has its uses."""
    kept: list[Any] = []
    for one in sums:
        of_same = (k for k in kept if k.operands[2] == one.operands[2] and _same(k.operands[1], one.operands[1], DEPTH))
        other = next(of_same, None)
        if other is None or other.results[0].type != one.results[0].type:
            kept.append(one)
        else:
            one.results[0].replace_all_uses_with(other.results[0])
            one.erase()
    return kept


def _same(one: Any, other: Any, depth: int) -> bool:
    """Whether two values are computed of the same by the same operations; no is no proof."""
    if one == other:
        return True
    a, b = one.owner, other.owner
    if not depth or not hasattr(a, "operands") or not hasattr(b, "operands") or a.name != b.name:
        return False
    alike = _attributes(a) == _attributes(b) and len(a.regions) == len(b.regions) == 0 and len(a.results) == 1
    operands = list(a.operands), list(b.operands)
    return alike and len(operands[0]) == len(operands[1]) and all(_same(x, y, depth - 1) for x, y in zip(*operands))


def _attributes(operation: Any) -> dict[str, Any]:
    names = {getattr(key, "name", key) for key in operation.attributes}  # JAX before 0.12: of pairs
    return {name: operation.attributes[name] for name in names}


def _is_taken_low(table: Any, functions: Mapping[str, Any]) -> bool:
    """Whether rows of a table are looked up, and all of them are cast to bfloat16."""
    looked_up = [rows for use in table.uses for rows in _looked_up(use, functions)]
    return bool(looked_up) and all(_is_cast(value) for value in looked_up)


def _looked_up(use: Any, functions: Mapping[str, Any]) -> Iterator[Any]:
    """The rows that a use of a table as an operand takes."""
    user = use.owner
    if user.name == "stablehlo.gather" and use.operand_number == 0:
        yield user.results[0]
    elif user.name == "func.call":
        called = functions[str(user.attributes["callee"]).lstrip("@")].regions[0].blocks[0]
        inner = called.arguments[use.operand_number]
        if any(one.owner.name == "stablehlo.gather" and one.operand_number == 0 for one in inner.uses):
            yield from user.results


def _is_cast(value: Any) -> bool:
    users = [use.owner for use in value.uses]
    casts = [one for one in users if one.name == "stablehlo.convert" and _dtype(one.results[0]) == "bf16"]
    moved = [one for one in users if one.name in MOVES]
    return len(casts) + len(moved) == len(users) > 0 and all(_is_cast(one.results[0]) for one in moved)


def _dtype(value: Any) -> str:
    return str(value.type.element_type)


def _text(one: Any, placement: Placement) -> str:
    """The module that takes a sum's rows and ids and returns it, "" where rows do not divide among the devices."""
    ids, rows = (value.type for value in one.operands[1:])
    devices, table = len(placement.devices), one.results[0].type.shape
    if rows.shape[0] % devices:
        return ""
    axes = {HOSTS: placement.hosts, AXIS: placement.parts} if placement.divides_hosts else {AXIS: devices}
    mesh = {RANKS: placement.ranks, **axes} if placement.ranks > 1 else axes
    sizes = {
        "mesh": ", ".join('"%s"=%d' % item for item in mesh.items()),
        "axes": "{%s}" % ", ".join('"%s"' % name for name in axes),
        "n": devices, "r": rows.shape[0], "p": rows.shape[0] // devices, "v": table[0],
        "d": "x".join(map(str, table[1:])), "i": ids.element_type, "rest": ", {}" * (rows.rank - 1),
        "form": one.attributes["scatter_dimension_numbers"],
    }  # fmt: skip
    return TEXT.format(**sizes)


def _substitute(ir: Any, module: Any, one: Any, text: str) -> None:
    """Calls a function of its rows and ids in the place of a sum, which a module's text has."""
    given = ir.Module.parse(text)
    artifacts.place_mesh(ir, module, given)
    names = {artifacts.name(function) for function in artifacts.functions(module)}
    own = next(name for name in map((NAME + ".%d").__mod__, itertools.count()) if name not in names)
    copy = artifacts.functions(given)[0].operation.clone(ir.InsertionPoint(module.body))
    copy.attributes["sym_name"] = ir.StringAttr.get(own)
    called = {"callee": ir.FlatSymbolRefAttr.get(own)}
    call = ir.Operation.create(
        "func.call", [one.results[0].type], [one.operands[2], one.operands[1]], called,
        loc=one.location, ip=ir.InsertionPoint(one),
    )  # fmt: skip
    one.results[0].replace_all_uses_with(call.results[0])
    one.erase()
