"""What each worker of `npu-shim launch` is told: its rank, its device, the addresses of all. Standard library only."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from typing import Mapping, NamedTuple, Sequence

from npu_shim.distributed.job.description import DEVICE, HOSTS, LOCAL_SIZE, RANK, SIZE
from npu_shim.rewriter.errors import ConfigError

VISIBLE = "CUDA_VISIBLE_DEVICES"
GPUS = "/proc/driver/nvidia/gpus"  # a folder for each


class Place(NamedTuple):
    """Where a rank is: its number, its host, its number among those of its host."""

    rank: int
    host: str
    local: int


def places(count: int, hosts: Sequence[str]) -> list[Place]:
    """Returns the Place of each of `count` ranks: hosts one after the other, as many on each, the first with the rest.

    Raises:
        ConfigError: fewer workers than hosts, or a host twice.
    """
    if len(set(hosts)) != len(hosts):
        raise ConfigError("--hosts %s: each host must be there once" % ",".join(hosts))
    if count < len(hosts):
        raise ConfigError("-n %d: fewer workers than the %d hosts" % (count, len(hosts)))
    share, more = divmod(count, len(hosts))
    return of_hosts([host for number, host in enumerate(hosts) for _ in range(share + (number < more))])


def of_hosts(hosts: Sequence[str]) -> list[Place]:
    """Returns the Place of each rank, given the host of each."""
    return [Place(rank, host, hosts[:rank].count(host)) for rank, host in enumerate(hosts)]


def is_free(port: int) -> bool:
    """Whether a server can listen on a port of this machine."""
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("", port))
        except OSError:
            return False
    return True


def free_ports(count: int) -> list[int]:
    """Returns ports of this machine that nothing listens on."""
    with contextlib.ExitStack() as held:  # all at once, so that they differ
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("", 0))
        return [socket.getsockname()[1] for socket in sockets]


def visible_gpus(environment: Mapping[str, str]) -> list[str]:
    """Returns the GPUs that workers may have, as CUDA_VISIBLE_DEVICES names them; none on a machine without."""
    given = environment.get(VISIBLE)
    if given is not None:
        named = [word.strip() for word in given.split(",")]
        return [] if named[0] in ("", "-1", "NoDevFiles") else named
    with contextlib.suppress(OSError):
        return [str(number) for number in range(len(os.listdir(GPUS)))]
    with contextlib.suppress(OSError):
        listed = subprocess.run(["nvidia-smi", "-L"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
        gpus = [line for line in listed.stdout.splitlines() if line.startswith(b"GPU ")]
        return [str(number) for number in range(len(gpus))]
    return []


def alone(base: Mapping[str, str]) -> dict[str, str]:
    """Returns an environment without ranks, of a worker whose output is a pipe."""
    environment = {name: value for name, value in base.items() if name not in (*SIZE, *RANK)}
    environment.setdefault("PYTHONUNBUFFERED", "1")  # lines come when they are written
    return environment


def environment_of(
    place: Place, all_places: Sequence[Place], ports: Sequence[int], gpus: Sequence[str], base: Mapping[str, str]
) -> dict[str, str]:
    """Returns the environment of a worker.

    Args:
        place: its Place.
        all_places: list of every rank's Place.
        ports: port of each rank.
        gpus: names of this machine's GPUs, for each worker here its own, "2,3"; empty for CPUs.
        base: the environment that it is added to.
    """
    environment = alone(base)
    addresses = ["%s:%d" % (place.host, port) for place, port in zip(all_places, ports)]
    environment.update(
        {
            SIZE[0]: str(len(all_places)),
            RANK[0]: str(place.rank),
            **dict.fromkeys(DEVICE, str(place.local)),
            "DEVICE_INDEX": str(place.rank),
            LOCAL_SIZE[0]: str(sum(other.host == place.host for other in all_places)),
            HOSTS: ",".join(addresses),
        }
    )
    if gpus:
        environment[VISIBLE] = gpus[place.local]
    return environment
