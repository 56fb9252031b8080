"""Programs that several processes run together, with one device of each: a rank's arrays in arrays of all ranks.

    this rank's [32, 128], three others' beside it   ->   [128, 128], one quarter on each rank's device

Each rank's program computes on its own part alone and meets the others in its exchanges (`exchanges`), as TensorFlow's
ranks do: so ranks may have different values of a variable, and batches of their own. What the arrays of all ranks are
called for is JAX, which runs a program of several processes on nothing else; they are made without a copy.

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

AXIS = "ranks"  # the only axis of the mesh
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
    """

    address: str
    size: int
    rank: int
    local: int
    seconds: int
    hosts: Sequence[str] = ()


def join(jax: Any, job: Job) -> None:
    """Makes this process one of a job's, before JAX has any device.

    Raises:
        RuntimeError: the others did not come, or JAX is in use.
    """
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(
        job.address, job.size, job.rank, None if job.hosts else own_card(job.local),
        initialization_timeout=job.seconds, heartbeat_timeout_seconds=NEVER,
    )  # fmt: skip


def own_card(local: int) -> int | None:
    """Returns the number of a rank's GPU among those that its process sees, None where it sees one at most.

    The launcher shows each rank its own. Other ways to start ranks show each rank all of them, and two ranks on one
    card are an error of NCCL's.

    Args:
        local: number of the rank among those of its machine.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = len(glob.glob(CARDS)) if visible is None else len([name for name in visible.split(",") if name.strip()])
    return local % count if count > 1 else None


@dataclass(frozen=True)
class Ranks:
    """The ranks that run a program.

    Attributes:
        jax: the module.
        devices: the jax device of each, in the order in which gathered arrays stand.
        own: this process's.
    """

    jax: Any
    devices: tuple[Any, ...]
    own: Any

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

        spec = self.sharding.spec
        mesh, shard_map = self.sharding.mesh, self.jax.shard_map
        together: Callable[..., Any] = shard_map(of_own, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
        return together

    def described(self, aval: Any) -> Any:
        """What describes all ranks' array, given what describes this rank's."""
        return self.jax.ShapeDtypeStruct(self._shape(aval.shape), aval.dtype, sharding=self.sharding)

    def spread(self, value: Any) -> Any:
        """All ranks' array, given this rank's part: a jax array, which stays where it is, or one of numpy."""
        part = value if isinstance(value, self.jax.Array) else self.jax.device_put(value, self.own)
        part = part if part.ndim else part.reshape(1)
        return self.jax.make_array_from_single_device_arrays(self._shape(part.shape), self.sharding, [part])

    @property
    def sharding(self) -> Any:
        """The jax sharding of all ranks' arrays."""
        return _sharding(self.devices)

    def _shape(self, own: Sequence[int]) -> tuple[int, ...]:
        first, *others = _divisible(own)
        return (first * len(self.devices), *others)


@functools.lru_cache(maxsize=None)  # it is asked for with each array of each step
def _sharding(devices: tuple[Any, ...]) -> Any:
    from jax import sharding

    return sharding.NamedSharding(sharding.Mesh(np.array(devices), (AXIS,)), sharding.PartitionSpec(AXIS))


def _divisible(shape: Sequence[int]) -> tuple[int, ...]:
    """The shape in which a rank's array is a part of one: a scalar is a row."""
    return tuple(shape) or (1,)


def own_part(array: Any, shape: Sequence[int]) -> Any:
    """This rank's part of an array of all ranks, in its own shape."""
    part = array.addressable_shards[0].data
    return part if part.shape == tuple(shape) else part.reshape(tuple(shape))


def of(jax: Any, members: Sequence[int]) -> Ranks:
    """Returns these ranks, each with the first device of its process."""
    first: dict[int, Any] = {}
    for device in jax.devices():
        first.setdefault(device.process_index, device)
    return Ranks(jax, tuple(first[member] for member in members), first[jax.process_index()])


def met(text: str) -> tuple[str, ...]:
    """Lists the exchanges of a compiled program (its text), in the order of its schedule."""
    return tuple(" ".join(exchange) for exchange in MEETING.findall(text))


def is_of_all(exchange: str, count: int) -> bool:
    """Whether one of what `met` lists, or of what a program assumes of the others, is of all of so many ranks."""
    groups = exchange.partition("replica_groups=")[2]
    if groups.startswith("["):  # [number of groups,size of each]<=...
        return int(groups[1:].partition("]")[0].split(",")[-1]) == count
    first = groups.lstrip("{").partition("}")[0] or exchange.partition("[")[2].partition("]")[0]
    return len(first.split(",")) == count


def meeting(ranks: Ranks) -> Callable[[Sequence[int]], Any]:
    """Returns a function by which ranks tell each other numbers: given this rank's, it returns a row of each rank's."""
    jax, spec = ranks.jax, ranks.sharding.spec
    told = jax.shard_map(
        lambda row: jax.lax.all_gather(row, AXIS), mesh=ranks.sharding.mesh, in_specs=spec, out_specs=spec,
        check_vma=False,
    )  # fmt: skip
    gather = jax.jit(told)

    def tell(numbers: Sequence[int]) -> Any:
        with jax.enable_x64(True):
            gathered = gather(ranks.spread(np.array([numbers], np.int64)))
            return np.asarray(gathered.addressable_shards[0].data).reshape(len(ranks.devices), len(numbers))

    return tell
