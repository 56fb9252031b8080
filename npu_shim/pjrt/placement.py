"""Where a program's arrays are: on one device, or on several with each feed split by its first dimension.

    feed [32, 128]  -> four devices ->  [8, 128] on each        variables -> a copy on each

XLA's partitioner makes one program for all devices of it: what comes out is what one device computes, up to the order
of sums, whichever dimension is split. A dimension that holds no examples costs time, and changes no number. (GSPMD:
Xu et al., "General and Scalable Parallelization for ML Computation Graphs", arXiv:2105.04663.)
"""

from __future__ import annotations

import contextlib
import functools
from dataclasses import dataclass
from typing import Any, Sequence

import numpy as np

from npu_shim.rewriter.errors import ConfigError

ALL = "all"
AXIS = "batch"  # the only axis of the mesh of devices


@dataclass(frozen=True)
class Placement:
    """The devices of a program.

    Attributes:
        devices: tuple of jax devices, of one platform.
    """

    devices: tuple[Any, ...]

    @property
    def platform(self) -> str:
        """Their platform: "cpu", "gpu", ..."""
        return str(self.devices[0].platform)

    def splits(self, shape: Sequence[int]) -> bool:
        """Whether a feed of this shape is split: its first dimension is a multiple of the number of devices."""
        return len(self.devices) > 1 and len(shape) > 0 and shape[0] > 0 and shape[0] % len(self.devices) == 0

    @functools.cached_property
    def whole(self) -> Any:
        """The jax sharding of an array of which each device has a copy."""
        from jax import sharding

        if len(self.devices) == 1:
            return sharding.SingleDeviceSharding(self.devices[0])
        return sharding.NamedSharding(self._mesh, sharding.PartitionSpec())

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

    @functools.cached_property
    def _mesh(self) -> Any:
        from jax import sharding

        return sharding.Mesh(np.array(self.devices), (AXIS,))


def of(jax: Any, count: int | str) -> Placement:
    """Returns the first devices that JAX sees.

    Args:
        jax: the module.
        count: how many, or ALL.

    Raises:
        ConfigError: there are fewer.
    """
    seen = jax.devices()
    if count == ALL:
        return Placement(tuple(seen))
    if len(seen) < int(count):
        raise ConfigError("devices is %s, and JAX sees %d (%s)" % (count, len(seen), seen[0].platform))
    return Placement(tuple(seen[: int(count)]))


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
