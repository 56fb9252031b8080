"""What ranks exchange inside of a program, as operations of JAX: all-reduce, all-gather, all-to-all.

    one rank's step  --these-->  StableHLO's collectives over the program's partitions  --ranks.py-->  a mesh of ranks

jax.lax has collectives over named axes, which a step that is lowered alone does not have: it is one rank's, whose
arrays are that rank's own, and only the program that runs it knows the mesh. So these name the partitions themselves,
which is what those of jax.lax become under `shard_map` as well.

Ranks that are in no group of an exchange take no part in it: their own programs do not have it. StableHLO wants them
named all the same: a reduction leaves each of them alone, the others put them in groups of the same size.

Of ranks with several devices each, a device meets those with its own number of the other ranks. XLA's partitioner,
which divides a rank's values among its devices, reduces part by part what is divided, and first makes whole what is
gathered.
"""

from __future__ import annotations

import itertools
from typing import Any, Sequence

import jax
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import mlir
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

REDUCTIONS = {"Add": "add", "Mul": "multiply", "Max": "maximum", "Min": "minimum"}  # TensorFlow's name -> StableHLO's
BETWEEN_DEVICES = 1  # type of a channel
_channels = itertools.count(1)  # a number for each exchange, of which one program has none twice


def all_reduce(x: Any, reduction: str, members: Sequence[int], count: int, devices: int = 1) -> Any:
    """Returns the reduction of the members' arrays.

    Args:
        x: array of the same shape on every member.
        reduction: a key of REDUCTIONS.
        members: numbers of the ranks that exchange, in the mesh.
        count: how many ranks run the program.
        devices: how many each of them has, one rank's numbered after the other's.
    """
    alone = [[number] for number in range(count) if number not in members]
    groups = _rows([list(members), *alone], devices)
    return _all_reduce.bind(x, reduction=reduction, groups=groups, channel=next(_channels))


def all_gather(x: Any, members: Sequence[int], count: int, devices: int = 1) -> Any:
    """Returns the members' arrays one after the other, along the first dimension; arguments as of `all_reduce`.

    Raises:
        ValueError: the other ranks cannot be put in groups of that size.
    """
    return _all_gather.bind(x, groups=_alike(members, count, devices), channel=next(_channels))


def all_to_all(x: Any, members: Sequence[int], count: int, devices: int = 1) -> Any:
    """Returns what each member has for this one, of arrays with a row of the first dimension for each of them."""
    return _all_to_all.bind(x, groups=_alike(members, count, devices), channel=next(_channels))


def _alike(members: Sequence[int], count: int, devices: int) -> tuple[tuple[int, ...], ...]:
    others = [number for number in range(count) if number not in members]
    size = len(members)
    if len(others) % size:
        raise ValueError("%d of %d ranks gather, and the others make no groups of that size" % (size, count))
    return _rows([list(members), *(others[at : at + size] for at in range(0, len(others), size))], devices)


def _rows(groups: Sequence[Sequence[int]], devices: int) -> tuple[tuple[int, ...], ...]:
    """Groups of ranks as groups of devices: rows of one length, shorter ones with -1 behind."""
    longest = max(map(len, groups))
    of_devices = ([rank * devices + own for rank in group] for group in groups for own in range(devices))
    return tuple((*group, *[-1] * (longest - len(group))) for group in of_devices)


def _lowered(build: Any) -> Any:
    """A primitive's lowering, of a function of (aval of the result, operand, {groups, channel and the like})."""

    def lowering(context: Any, x: Any, *, groups: Any, channel: int, **given: Any) -> Any:
        rows = ir.DenseIntElementsAttr.get(np.array(groups, np.int64))
        handle = stablehlo.ChannelHandle.get(channel, BETWEEN_DEVICES)
        return build(context.avals_out[0], x, rows, handle, **given).results

    return lowering


def _build_reduce(aval: Any, x: Any, groups: Any, handle: Any, *, reduction: str) -> Any:
    built = stablehlo.AllReduceOp([x.type], [x], groups, channel_handle=handle, use_global_device_ids=True)
    scalar = ir.RankedTensorType.get([], ir.RankedTensorType(x.type).element_type)
    block = built.regions[0].blocks.append(scalar, scalar)
    with ir.InsertionPoint(block):
        stablehlo.return_([getattr(stablehlo, REDUCTIONS[reduction])(*block.arguments)])
    return built


def _build_gather(aval: Any, x: Any, groups: Any, handle: Any) -> Any:
    result = ir.RankedTensorType.get(aval.shape, ir.RankedTensorType(x.type).element_type)
    return stablehlo.AllGatherOp([result], [x], 0, groups, channel_handle=handle, use_global_device_ids=True)


def _build_exchange(aval: Any, x: Any, groups: Any, handle: Any) -> Any:
    size = ir.DenseIntElementsAttr(groups).type.shape[1]
    return stablehlo.AllToAllOp([x], 0, 0, size, groups, channel_handle=handle)


def _gathered(x: Any, *, groups: Any, channel: int) -> Any:
    return jax.core.ShapedArray((x.shape[0] * len(groups[0]), *x.shape[1:]), x.dtype)


def _primitive(name: str, shape: Any, build: Any) -> Any:
    primitive = Primitive(name)
    primitive.def_abstract_eval(shape)
    mlir.register_lowering(primitive, _lowered(build))
    return primitive


_all_reduce = _primitive("rank_all_reduce", lambda x, **_: jax.core.ShapedArray(x.shape, x.dtype), _build_reduce)
_all_gather = _primitive("rank_all_gather", _gathered, _build_gather)
_all_to_all = _primitive("rank_all_to_all", lambda x, **_: jax.core.ShapedArray(x.shape, x.dtype), _build_exchange)
