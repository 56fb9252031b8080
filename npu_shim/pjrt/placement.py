"""Where a program's arrays are: on one device, or on several with each feed split by its first dimension.

    feed [32, 128]  -> four devices ->  [8, 128] on each
    variable [1000, 64]             ->  a copy on each, or, where its role is sharded, [250, 64]

XLA's partitioner makes one program for all devices of it: what comes out is what one device computes, up to the order
of sums, whichever dimension is split. A dimension that holds no examples costs time, and changes no number. (GSPMD:
Xu et al., "General and Scalable Parallelization for ML Computation Graphs", arXiv:2105.04663. Sharded state: Xu et al.,
"Automatic Cross-Replica Sharding of Weight Update in Data-Parallel Training", arXiv:2004.13336; Rajbhandari et al.,
"ZeRO", arXiv:1910.02054.)
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any, Mapping, Sequence

import numpy as np

from npu_shim.pjrt.manifest import Manifest, Tensor
from npu_shim.rewriter.errors import ConfigError

ALL = "all"
AXIS = "batch"  # the axis of the mesh of devices, of those of one host where a part of the state is on each
RANKS = "ranks"  # the axis before it where ranks run programs together, each with devices of its own
HOSTS = "hosts"  # the axis before it, of several hosts
# what is asked for -> roles of the variables of which each device has a part
SHARDED: dict[str, tuple[str, ...]] = {"off": (), "optimizer": ("optimizer",), "all": ("optimizer", "parameter")}


@dataclass(frozen=True)
class Placement:
    """The devices of a program.

    Attributes:
        devices: tuple of jax devices, of one platform; of None where only their number matters.
        shard_state: which variables are divided, a key of SHARDED.
        hosts: of how many hosts they are, as many of each, one host's after the other's.
        ranks: how many ranks run programs together, with as many devices each; these are one rank's.
    """

    devices: tuple[Any, ...]
    shard_state: str = "off"
    hosts: int = 1
    ranks: int = 1

    @property
    def platform(self) -> str:
        """Their platform: "cpu", "gpu", ..."""
        return str(self.devices[0].platform)

    def splits(self, shape: Sequence[int]) -> bool:
        """Whether a feed of this shape is split: its first dimension is a multiple of the number of devices."""
        return len(self.devices) > 1 and len(shape) > 0 and shape[0] > 0 and shape[0] % len(self.devices) == 0

    @property
    def whole(self) -> Any:
        """The jax sharding of an array of which each device has a copy."""
        from jax import sharding

        if len(self.devices) == 1:
            return sharding.SingleDeviceSharding(self.devices[0])
        return sharding.NamedSharding(self._mesh, sharding.PartitionSpec())

    def bytes_of_feed(self, feed: Tensor) -> int:
        """Bytes of a feed on each device."""
        return feed.bytes // (len(self.devices) if self.splits(feed.shape) else 1)

    def of_feed(self, shape: Sequence[int], leading: int = 0, own: bool = False) -> Any:
        """The jax sharding of a feed.

        Args:
            shape: of the feed in one step.
            leading: dimensions in front of these, of which each device has all.
            own: whether each host has its own rows only, which all of its devices have where these do not divide.
        """
        from jax import sharding

        if own and not self.splits(shape):
            return sharding.NamedSharding(self._rows, sharding.PartitionSpec(*[None] * leading, HOSTS))
        if not self.splits(shape):
            return self.whole
        axes = (HOSTS, AXIS) if self.divides_hosts else AXIS
        return sharding.NamedSharding(self._mesh, sharding.PartitionSpec(*[None] * leading, axes))

    @property
    def parts(self) -> int:
        """How many parts a divided variable has: every host has all of them, on its own devices."""
        return len(self.devices) // self.hosts

    def divided(self, variable: Tensor) -> int | None:
        """The dimension by which a variable is divided: its longest that is a multiple; None where none is."""
        count, sizes = self.parts, variable.shape
        if count == 1 or variable.role not in SHARDED[self.shard_state]:
            return None
        fitting = [number for number, size in enumerate(sizes) if size and size % count == 0]
        return max(fitting, key=lambda number: sizes[number], default=None)

    def of_state(self, variable: Tensor) -> Any:
        """The jax sharding of a variable."""
        from jax import sharding

        number = self.divided(variable)
        if number is None:
            return self.whole
        return sharding.NamedSharding(self._mesh, sharding.PartitionSpec(*[None] * number, AXIS))

    def bytes_of(self, variable: Tensor) -> int:
        """Bytes of a variable on each device."""
        return variable.bytes // (1 if self.divided(variable) is None else self.parts)

    def placed(self, value: Any, where: Any) -> Any:
        """The jax array of a value that every host has as a whole, in a sharding; each gives its devices their parts.

        Args:
            value: np.ndarray, of which the array may be a view.
            where: what `whole`, `of_feed` or `of_state` returns.
        """
        import jax

        return jax.make_array_from_callback(np.shape(value), where, lambda index: value[index])

    def placed_rows(self, value: Any, where: Any, leading: int) -> Any:
        """The jax array of values of which each host has rows, one host's after the other's; others as of `placed`.

        Args:
            value: this host's rows, as many as the other hosts'.
            where: what `of_feed` returns for the shape of all.
            leading: dimensions in front of that of the rows.
        """
        import jax

        shape, rows = list(np.shape(value)), np.shape(value)[leading]
        shape[leading] *= self.hosts
        first = jax.process_index() * rows

        def part(index: Any) -> Any:
            begin, end, _ = index[leading].indices(shape[leading])
            return value[(*index[:leading], slice(begin - first, end - first), *index[leading + 1 :])]

        return jax.make_array_from_callback(tuple(shape), where, part)

    def of_first(self, values: Mapping[str, Any], where: Mapping[str, Any]) -> Any:
        """The first host's values on all hosts.

        Args:
            values: dict of name to this host's np.ndarray, of the same dtypes and shapes on all hosts.
            where: dict of name to the sharding of the result.

        Returns:
            dict of name to jax array.
        """
        import jax

        rows = jax.sharding.NamedSharding(self._rows, jax.sharding.PartitionSpec(HOSTS))
        given = {
            name: jax.make_array_from_callback((self.hosts, *value.shape), rows, lambda _, value=value: value[None])
            for name, value in values.items()
        }
        return jax.jit(lambda of: {name: row[0] for name, row in of.items()}, out_shardings=dict(where))(given)

    @property
    def divides_hosts(self) -> bool:
        """Whether the mesh has a row for each host, among whose devices alone variables are divided."""
        return self.hosts > 1 and self.shard_state != "off"

    @property
    def _rows(self) -> Any:
        """The mesh with a row of devices for each host."""
        from jax import sharding

        return sharding.Mesh(np.array(self.devices).reshape(self.hosts, -1), (HOSTS, AXIS))

    @property
    def _mesh(self) -> Any:
        from jax import sharding

        return self._rows if self.divides_hosts else sharding.Mesh(np.array(self.devices), (AXIS,))


def own(array: Any) -> Any:
    """The whole value, a np.ndarray, of a jax array of which this host's devices together have all."""
    if array.is_fully_addressable or array.is_fully_replicated:
        return np.asarray(array)
    value = np.empty(array.shape, array.dtype)
    for shard in array.addressable_shards:
        value[shard.index] = np.asarray(shard.data)
    return value


def of(jax: Any, count: int | str, shard_state: str = "off", hosts: Sequence[str] = ()) -> Placement:
    """Returns the first devices that JAX sees.

    Args:
        jax: the module.
        count: how many, of each host, or ALL.
        shard_state: a key of SHARDED.
        hosts: the name of each process's host, where their devices run programs together; () for this process's alone.

    Raises:
        ConfigError: there are fewer, or hosts have different numbers.
    """
    if hosts:
        return _of_hosts(jax, count, shard_state, hosts)
    seen = jax.local_devices()  # of several processes, each has its own
    if count == ALL:
        return Placement(tuple(seen), shard_state)
    if len(seen) < int(count):
        raise ConfigError("devices is %s, and JAX sees %d (%s)" % (count, len(seen), seen[0].platform))
    return Placement(tuple(seen[: int(count)]), shard_state)


def _of_hosts(jax: Any, count: int | str, shard_state: str, hosts: Sequence[str]) -> Placement:
    seen: list[list[Any]] = [[] for _ in hosts]
    for device in jax.devices():
        seen[device.process_index].append(device)
    numbers = [len(of_host) for of_host in seen]
    words = ", ".join("host %s has %d (%s)" % (name, len(of), of[0].platform) for name, of in zip(hosts, seen))
    if count == ALL and len(set(numbers)) > 1:
        raise ConfigError("hosts need the same number of devices, and %s: ask for %d of each" % (words, min(numbers)))
    wanted = numbers[0] if count == ALL else int(count)
    if min(numbers) < wanted:
        raise ConfigError("devices is %s, and %s" % (count, words))
    return Placement(tuple(device for of in seen for device in of[:wanted]), shard_state, len(hosts))


def undivided(manifest: Manifest, placed: Placement) -> str:
    """Says which feeds of a program each of several devices has as a whole, "" for none; scalars are always whole."""
    count = len(placed.devices)
    whole = [t for t in manifest.feeds if t.shape and not placed.splits(t.shape)]
    if count == 1 or not manifest.feeds or not (whole or all(not t.shape for t in manifest.feeds)):
        return ""
    named = ", ".join("'%s' %s" % (t.name, list(t.shape)) for t in whole[:3]) + (", ..." if len(whole) > 3 else "")
    if not any(placed.splits(t.shape) for t in manifest.feeds):
        return (
            "devices: no feed of a step can be split over %d devices (%s): each of them computes the whole step; "
            "feed batches of a multiple of %d" % (count, named or "all are scalars", count)
        )
    return "devices: these feeds do not divide by %d, and each device has them whole: %s" % (count, named)


def shares(manifest: Manifest, placed: Placement) -> str:
    """Says how much of a program's variables each of several devices has, "" where it has all."""
    if len(placed.devices) == 1 or placed.shard_state == "off":
        return ""
    share, whole = (sum(map(size, manifest.state)) for size in (placed.bytes_of, lambda tensor: tensor.bytes))
    words = len(placed.devices), -(-share // 1000), -(-whole // 1000)
    return "devices: each of the %d has %d kB of the step's %d kB of variables" % words


def of_cards(count: int, shard_state: str = "off") -> Placement:
    """Returns the placement of a program on cards that need not be here."""
    return Placement((None,) * count, shard_state)


def provide(jax: Any, count: int | str) -> None:
    """Makes JAX see this many CPUs, where it is not in use yet: parts of this machine's, for a rehearsal.

    Args:
        jax: the module.
        count: how many, or ALL, for which nothing is done.
    """
    if count in (1, ALL) or jax.config.jax_num_cpu_devices == int(count):
        return
    with contextlib.suppress(RuntimeError):  # JAX is in use: `of` says what there is
        jax.config.update("jax_num_cpu_devices", int(count))
