"""A kernel on several devices: each computes the attention of its part of the batches. Needs no JAX.

XLA's partitioner cannot look into a kernel, and would have each device compute all batches. So the function that calls
it says by Shardy's dialect which part each device has:

    main(q [8, h, s, d], ..)   -> on four devices ->   part(q [2, h, s, d], ..)

Dropout draws for a batch by its number among all, so that each part is told that of its first. The gradient of a bias
that all batches share is the sum of the devices' own, in float32.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Iterable, Iterator, Sequence

from npu_shim.pjrt.artifacts import MESH
from npu_shim.pjrt.attention.spec import Argument, Shape, Spec
from npu_shim.pjrt.placement import AXIS

DTYPES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "int8": "i8", "int32": "i32"}  # as MLIR names them
SHAPES = ("q", "k", "v", "bias", "hidden", "mask")  # fields of a Spec that begin with batches, or with 1
NAME = "mesh"


def refused(spec: Spec, devices: int) -> str:
    """Returns why a number of devices cannot divide a Spec's batches, "" where they can."""
    batches = spec.q[0]
    return "%d devices cannot divide its %d batches" % (devices, batches) if batches % devices else ""


def part(spec: Spec, devices: int) -> Spec:
    """Returns what each device computes."""
    shapes = {name: getattr(spec, name) for name in SHAPES}
    divided: Any = {name: _divided(shape, devices) for name, shape in shapes.items() if shape}
    return dataclasses.replace(spec, **divided)


def more(spec: Spec) -> tuple[Argument, ...]:
    """Returns what the kernel of a part takes besides its Spec's arguments."""
    return (Argument("first", "int32", (1,)),) if spec.rate and spec.drawn[0] > 1 else ()


def sums(spec: Spec) -> str:
    """Returns the dtype of a part's gradient of the bias where it is a sum of the devices' own, "" where it is not."""
    return "float32" if spec.bias_gradient and spec.bias and spec.bias[0] == 1 else ""


def whole(spec: Spec, devices: int, text: str) -> str:
    """Returns the module of a kernel for all devices.

    Args:
        spec: of all batches.
        devices: how many.
        text: the module of the kernel of a part, whose function is `main`.
    """
    head, begin, rest = text.partition("func.func public @main(")
    mesh = '%s @%s = <["%s"=%d]>' % (MESH, NAME, AXIS, devices)
    return "\n".join([head + mesh, *_main(spec, devices), begin.replace("public @main", "private @part") + rest])


def _main(spec: Spec, devices: int) -> Iterator[str]:
    """The lines of the function that gives each device its part."""
    given, results = list(spec.arguments), list(spec.results)
    taken = given + [argument._replace(shape=(devices,)) for argument in more(spec)]
    returned = list(results)
    if sums(spec):  # a row of each device
        returned[-1] = Argument("sums", sums(spec), (devices, *results[-1].shape[1:]))
    names, parts = (["%%%s%d" % (letter, number) for number in range(len(taken))] for letter in "ap")
    yield "func.func public @main(%s) -> (%s) {" % (_signature(names, _types(given)), ", ".join(_types(results)))
    for name, argument in zip(names[len(given) :], more(spec)):
        firsts = [number * spec.q[0] // devices for number in range(devices)]
        yield "%s = stablehlo.constant dense<%s> : %s" % (name, firsts, _type((devices,), argument.dtype))
    local, local_returned = (_types(_part(row, devices) for row in rows) for rows in (taken, returned))
    yield '%%r:%d = sdy.manual_computation(%s) in_shardings=[%s] out_shardings=[%s] manual_axes={"%s"} (%s) {' % (
        len(returned), ", ".join(names), _shardings(taken), _shardings(returned), AXIS, _signature(parts, local)
    )  # fmt: skip
    signature = "(%s) -> (%s)" % (", ".join(local), ", ".join(local_returned))
    yield "%%o:%d = func.call @part(%s) : %s" % (len(returned), ", ".join(parts), signature)
    yield "sdy.return %s : %s" % (_results_of("%o", returned), ", ".join(local_returned))
    yield "} : (%s) -> (%s)" % (", ".join(_types(taken)), ", ".join(_types(returned)))
    if sums(spec):
        yield from _sum(returned[-1], results[-1], len(returned) - 1)
        yield "return %s : %s" % (", ".join([_results_of("%r", returned[:-1]), "%sum"]), ", ".join(_types(results)))
    else:
        yield "return %s : %s" % (_results_of("%r", returned), ", ".join(_types(results)))
    yield "}"


def _sum(rows: Argument, result: Argument, number: int) -> Iterator[str]:
    """The lines that add up a row of each device."""
    wide, left, shaped = (_type(shape, rows.dtype) for shape in (rows.shape, rows.shape[1:], result.shape))
    yield "%%zero = stablehlo.constant dense<0.0> : %s" % _type((), rows.dtype)
    added = "applies stablehlo.add across dimensions = [0]"
    types = "(%s, %s) -> %s" % (wide, _type((), rows.dtype), left)
    yield "%%added = stablehlo.reduce(%%r#%d init: %%zero) %s : %s" % (number, added, types)
    yield "%%shaped = stablehlo.reshape %%added : (%s) -> %s" % (left, shaped)
    yield "%%sum = stablehlo.convert %%shaped : (%s) -> %s" % (shaped, _type(result.shape, result.dtype))


def _divided(shape: Shape, devices: int) -> Shape:
    return (shape[0] // devices, *shape[1:]) if shape[0] > 1 else shape


def _is_divided(argument: Argument) -> bool:
    return argument.name != "seed" and argument.shape[0] > 1


def _part(argument: Argument, devices: int) -> Argument:
    """What a device has of an operand or result of all."""
    return argument._replace(shape=_divided(argument.shape, devices)) if _is_divided(argument) else argument


def _shardings(arguments: Sequence[Argument]) -> str:
    axes = {True: '{"%s"}' % AXIS, False: "{}"}
    rows = ([axes[_is_divided(argument)], *["{}"] * (len(argument.shape) - 1)] for argument in arguments)
    return ", ".join("<@%s, [%s]>" % (NAME, ", ".join(row)) for row in rows)


def _results_of(name: str, results: Sequence[Argument]) -> str:
    return ", ".join("%s#%d" % (name, number) for number in range(len(results)))


def _signature(names: Iterable[str], types: Iterable[str]) -> str:
    return ", ".join("%s: %s" % pair for pair in zip(names, types))


def _types(arguments: Iterable[Argument]) -> list[str]:
    return [_type(argument.shape, argument.dtype) for argument in arguments]


def _type(shape: Sequence[int], dtype: str) -> str:
    return "tensor<%s%s>" % ("".join("%dx" % size for size in shape), DTYPES[dtype])
