"""Programs that several processes run together, with the devices of each: a rank's arrays in arrays of all ranks.

    this rank's [32, 128], three others' beside it   ->   [128, 128], one quarter on each rank's device
    with two devices to a rank                       ->   [128, 128], one eighth on each device

Each rank's program computes on its own part alone and meets the others in its exchanges (`exchanges`), as TensorFlow's
ranks do: so ranks may have different values of a variable, and batches of their own. What the arrays of all ranks are
called for is JAX, which runs a program of several processes on nothing else; they are made without a copy. A rank's
own devices divide its part as they divide a program of this process alone (`placement`): XLA's partitioner has their
axis of the mesh, and not that of ranks.

Nothing compares the processes' programs: where they meet in another order, or with other sizes, they wait for ever, or
exchange what does not belong together. So `met` lists what a compiled program does when it meets the others, and ranks
compare their lists before they run any of it (`engine.together`).
"""

from __future__ import annotations

import functools
import glob
import os
import re
from dataclasses import dataclass
from typing import Any, Callable, NamedTuple, Sequence

import numpy as np

from npu_shim.pjrt import placement
from npu_shim.pjrt.placement import RANKS
from npu_shim.rewriter.errors import ConfigError

CARDS = "/dev/nvidia[0-9]*"  # the files of a machine's GPUs
NEVER = 10**7  # seconds without a sign of life after which JAX would end a process: our own liveness names the rank
# an exchange in the text of a compiled program: its result with its layout, its kind, who takes part, how it reduces
MEETING = re.compile(
    r"= (\S+|\([^=]*\)) (all-(?:reduce|gather|to-all)(?:-start)?|reduce-scatter|collective-permute(?:-start)?)\(.*?"
    r"(replica_groups=(?:\{\{.*?\}\}|\{\}|\[[^ ,]*,[^ ]*[^ ,]))"
)


class Job(NamedTuple):
    """What a process must know to meet the others.

    Attributes:
        address: "host:port" of rank 0's service.
        size: number of ranks.
        rank: this process's.
        local: its number among the ranks of its machine.
        seconds: how long to wait for the others.
        hosts: the name of each process's host, where all devices of all of them run one program; () for ranks.
        devices: how many devices each rank has, or "all" that it sees.
        beside: number of the ranks of this machine.
    """

    address: str
    size: int
    rank: int
    local: int
    seconds: int
    hosts: Sequence[str] = ()
    devices: int | str = 1
    beside: int = 1


def join(jax: Any, job: Job) -> None:
    """Makes this process one of a job's, before JAX has any device.

    Raises:
        RuntimeError: the others did not come, or JAX is in use.
    """
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(
        job.address, job.size, job.rank, None if job.hosts else own_cards(job),
        initialization_timeout=job.seconds, heartbeat_timeout_seconds=NEVER,
    )  # fmt: skip


def own_cards(job: Job) -> list[int] | None:
    """Returns the numbers of a rank's GPUs among those that its process sees, None where it sees no others.

    The launcher shows each rank its own. Other ways to start ranks show each rank all of them, and two ranks on one
    card are an error of NCCL's.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = len(glob.glob(CARDS)) if visible is None else len([name for name in visible.split(",") if name.strip()])
    own = count // job.beside if job.devices == placement.ALL else int(job.devices)
    return [(job.local * own + number) % count for number in range(own)] if count > own > 0 else None


@dataclass(frozen=True)
class Ranks:
    """The ranks that run a program.

    Attributes:
        jax: the module.
        devices: the jax devices of each, in the order in which gathered arrays stand; as many of each.
        placement: the `Placement` of this process's, where a rank's own arrays are.
    """

    jax: Any
    devices: tuple[tuple[Any, ...], ...]
    placement: placement.Placement

    def around(self, step: Callable[..., Any], given: Sequence[Any]) -> Callable[..., Any]:
        """A function of one rank's arrays as one of all ranks' arrays.

        Args:
            step: function of trees of arrays.
            given: the same trees, of what describes these arrays (`jax.ShapeDtypeStruct`).
        """
        tree_map = self.jax.tree.map

        def of_own(*parts: Any) -> Any:
            own = tree_map(lambda aval, part: part.reshape(aval.shape), tuple(given), parts)
            return tree_map(lambda result: result.reshape(_divisible(result.shape)), step(*own))

        spec = self.jax.sharding.PartitionSpec(RANKS)
        together: Callable[..., Any] = self.jax.shard_map(
            of_own, mesh=self.mesh, in_specs=spec, out_specs=spec, axis_names={RANKS}, check_vma=False
        )
        return together

    def described(self, aval: Any) -> Any:
        """What describes all ranks' array, given what describes this rank's."""
        return self.jax.ShapeDtypeStruct(self._shape(aval.shape), aval.dtype, sharding=self.sharding(aval.sharding))

    def spread(self, value: Any, where: Any = None) -> Any:
        """All ranks' array, given this rank's.

        Args:
            value: a jax array, which stays where it is, or one of numpy.
            where: this rank's jax sharding of one of numpy; default: a copy on each device.
        """
        own = value if isinstance(value, self.jax.Array) else self.jax.device_put(value, where or self.placement.whole)
        parts = _parts(own) if own.ndim else [part.reshape(1) for part in _parts(own)]
        shape, sharding = self._shape(own.shape), self.sharding(own.sharding)
        return self.jax.make_array_from_single_device_arrays(shape, sharding, parts)

    @property
    def mesh(self) -> Any:
        """The jax mesh of all ranks' devices."""
        return _mesh(self.devices)

    def sharding(self, own: Any) -> Any:
        """The jax sharding of all ranks' array, given that of this rank's."""
        return _sharding(self.devices, own)

    def _shape(self, own: Sequence[int]) -> tuple[int, ...]:
        first, *others = _divisible(own)
        return (first * len(self.devices), *others)


@functools.lru_cache(maxsize=None)  # they are asked for with each array of each step
def _mesh(devices: tuple[tuple[Any, ...], ...]) -> Any:
    from jax import sharding

    rows = np.array(devices)
    return sharding.Mesh(rows, (RANKS, placement.AXIS)) if rows.shape[1] > 1 else sharding.Mesh(rows[:, 0], (RANKS,))


@functools.lru_cache(maxsize=None)
def _sharding(devices: tuple[tuple[Any, ...], ...], own: Any) -> Any:
    from jax import sharding

    first, *others = tuple(getattr(own, "spec", ())) or (None,)
    axes = RANKS if first is None else (RANKS, first)
    return sharding.NamedSharding(_mesh(devices), sharding.PartitionSpec(axes, *others))


def _parts(array: Any) -> list[Any]:
    return [shard.data for shard in array.addressable_shards]


def _divisible(shape: Sequence[int]) -> tuple[int, ...]:
    """The shape in which a rank's array is a part of one: a scalar is a row."""
    return tuple(shape) or (1,)


def own_part(jax: Any, array: Any, shape: Sequence[int], where: Any) -> Any:
    """This rank's part of an array of all ranks, in its own shape and sharding."""
    parts = _parts(array) if len(shape) else [part.reshape(()) for part in _parts(array)]
    return parts[0] if len(parts) == 1 else jax.make_array_from_single_device_arrays(tuple(shape), where, parts)


def of(jax: Any, members: Sequence[int], own: placement.Placement) -> Ranks:
    """Returns these ranks.

    Args:
        jax: the module.
        members: the number of each one's process.
        own: of this process's devices, the first that it sees; the others have as many.

    Raises:
        ConfigError: one has fewer.
    """
    seen: dict[int, list[Any]] = {member: [] for member in members}
    for device in jax.devices():
        seen.get(device.process_index, []).append(device)
    count = len(own.devices)
    fewer = next((member for member in members if len(seen[member]) < count), None)
    if fewer is not None:
        words = jax.process_index(), count, fewer, len(seen[fewer])
        raise ConfigError("ranks need the same number of devices: rank %d has %d, and rank %d %d" % words)
    return Ranks(jax, tuple(tuple(seen[member][:count]) for member in members), own)


def met(text: str, devices: int = 1) -> tuple[str, ...]:
    """Lists the exchanges of a compiled program, in the order of its schedule.

    Args:
        text: the program's.
        devices: how many each rank has, one rank's numbered after the other's. Groups are of ranks then, with those of
            devices behind them. What a rank's own devices exchange is left out: others need not do the same.
    """
    exchanges = MEETING.findall(text)
    if devices > 1:
        exchanges = [(*said, _of_ranks(groups, devices)) for *said, groups in exchanges if "{}" not in groups]
    return tuple(" ".join(exchange) for exchange in exchanges if exchange[-1])


def _of_ranks(groups: str, devices: int) -> str:
    """`replica_groups` of ranks, "" where each is of one rank alone."""
    of_ranks = dict.fromkeys(tuple(dict.fromkeys(number // devices for number in group)) for group in _groups(groups))
    if all(len(group) == 1 for group in of_ranks):
        return ""
    text = ",".join("{%s}" % ",".join(map(str, group)) for group in of_ranks)
    return "replica_groups={%s} of %s" % (text, groups.partition("=")[2])


def _groups(text: str) -> list[list[int]]:
    """The groups that "replica_groups={{0,2},{1,3}}" has; also as "[2,2]<=[2,2]T(1,0)", of all numbers in an order."""
    of = text.partition("replica_groups=")[2]
    if of.startswith("{"):
        return [[int(number) for number in group.split(",")] for group in re.findall(r"\{([\d,]+)\}", of)]
    shape, sizes, order = (
        [int(number) for number in part.split(",")] if part else []
        for part in re.findall(r"\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?", of)[0]
    )
    numbers = np.arange(np.prod(sizes)).reshape(sizes)
    listed: list[list[int]] = numbers.transpose(order or range(len(sizes))).reshape(shape).tolist()
    return listed


def is_of_all(exchange: str, count: int) -> bool:
    """Whether one of what `met` lists, or of what a program assumes of the others, is of all of so many ranks."""
    if "replica_groups=" in exchange:
        return any(len(group) == count for group in _groups(exchange.partition(" of ")[0]))
    return len(exchange.partition("[")[2].partition("]")[0].split(",")) == count


def meeting(ranks: Ranks) -> Callable[[Sequence[int]], Any]:
    """Returns a function by which ranks tell each other numbers: given this rank's, it returns a row of each rank's."""
    jax, spec = ranks.jax, ranks.jax.sharding.PartitionSpec(RANKS)
    told = jax.shard_map(
        lambda row: jax.lax.all_gather(row, RANKS), mesh=ranks.mesh, in_specs=spec, out_specs=spec, check_vma=False
    )
    gather = jax.jit(told)

    def tell(numbers: Sequence[int]) -> Any:
        with jax.enable_x64(True):
            gathered = gather(ranks.spread(np.array([numbers], np.int64)))
            return np.asarray(gathered.addressable_shards[0].data).reshape(len(ranks.devices), len(numbers))

    return tell
