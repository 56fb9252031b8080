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
from typing import Any, Sequence

import numpy as np

from npu_shim.pjrt.manifest import Tensor
from npu_shim.rewriter.errors import ConfigError

ALL = "all"
AXIS = "batch"  # the only axis of the mesh of devices
# what is asked for -> roles of the variables of which each device has a part
SHARDED: dict[str, tuple[str, ...]] = {"off": (), "optimizer": ("optimizer",), "all": ("optimizer", "parameter")}


@dataclass(frozen=True)
class Placement:
    """The devices of a program.

    Attributes:
        devices: tuple of jax devices, of one platform; of None where only their number matters.
        shard_state: which variables are divided, a key of SHARDED.
    """

    devices: tuple[Any, ...]
    shard_state: str = "off"

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

    def of_feed(self, shape: Sequence[int], leading: int = 0) -> Any:
        """The jax sharding of a feed.

        Args:
            shape: of the feed in one step.
            leading: dimensions in front of these, of which each device has all.
        """
        from jax import sharding

        if not self.splits(shape):
            return self.whole
        return sharding.NamedSharding(self._mesh, sharding.PartitionSpec(*[None] * leading, AXIS))

    def divided(self, variable: Tensor) -> int | None:
        """The dimension by which a variable is divided: its longest that is a multiple; None where none is."""
        count, sizes = len(self.devices), variable.shape
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
        return variable.bytes // (1 if self.divided(variable) is None else len(self.devices))

    @property
    def _mesh(self) -> Any:
        from jax import sharding

        return sharding.Mesh(np.array(self.devices), (AXIS,))


def of(jax: Any, count: int | str, shard_state: str = "off") -> Placement:
    """Returns the first devices that JAX sees.

    Args:
        jax: the module.
        count: how many, or ALL.
        shard_state: a key of SHARDED.

    Raises:
        ConfigError: there are fewer.
    """
    seen = jax.local_devices()  # of several processes, each has its own
    if count == ALL:
        return Placement(tuple(seen), shard_state)
    if len(seen) < int(count):
        raise ConfigError("devices is %s, and JAX sees %d (%s)" % (count, len(seen), seen[0].platform))
    return Placement(tuple(seen[: int(count)]), shard_state)


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
