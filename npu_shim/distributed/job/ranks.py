"""Ranks and groups of the processes that train together, as the job's environment describes them (`description`).

Where nothing does, there is one process, rank 0 of 1. Standard library only.
Source: HCCL's Python interface of CANN 5 to 8 (`hccl.manage.api`, `hccl.split.api`); Ascend adapter of 2023-12.
"""

from __future__ import annotations

import os
from typing import Iterable

from npu_shim.distributed.job import description
from npu_shim.rewriter.errors import ConfigError, nearest

WORLD = "hccl_world_group"
_groups: dict[str, tuple[int, ...]] = {}  # name -> tuple of world ranks
_splits: dict[str, tuple[str, tuple[float, ...]]] = {}  # group -> how its gradients are split into allreduce calls


def world_size() -> int:
    """Returns the number of processes, 1 or more.

    Raises:
        ConfigError: what describes the job is incomplete or cannot be read.
    """
    return description.job(os.environ).size


def world_rank() -> int:
    """Returns this process's rank, 0 up to `world_size()` - 1.

    Raises:
        ConfigError: the environment gives no such number.
    """
    job = description.job(os.environ)
    rank = 0 if job.rank is None and job.size == 1 else job.rank
    if rank is None:
        words = (job.source, job.size, job.size - 1)
        raise ConfigError("%s=%d needs RANK_ID, this process's number from 0 to %d" % words)
    if not 0 <= rank < job.size:
        raise ConfigError("RANK_ID=%d in the environment is not below %s=%d" % (rank, job.source, job.size))
    return rank


def export() -> None:
    """Writes a job that something else than RANK_SIZE describes into the environment, as the vendor's variables.

    Scripts read RANK_SIZE and RANK_ID themselves, and processes that they start inherit them. One process, or a job
    that RANK_SIZE describes, stays as it is. Errors as `world_rank` and `addresses`.
    """
    job = description.job(os.environ)
    if job.size > 1 and job.source not in description.SIZE:
        variables = {
            description.SIZE[0]: job.size,
            description.RANK[0]: world_rank(),
            description.HOSTS: ",".join(addresses()),
            description.LOCAL_SIZE[0]: get_local_rank_size(),
            description.DEVICE[0]: get_local_rank_id(),
        }
        os.environ.update({name: str(value) for name, value in variables.items()})


def get_ranksize() -> int:
    """Returns the number of processes, 1 or more.

    Raises:
        ValueError: RANK_SIZE and CM_WORKER_SIZE are both set.
    """
    if os.environ.get("RANK_SIZE") and os.environ.get("CM_WORKER_SIZE"):
        raise ConfigError("RANK_SIZE and CM_WORKER_SIZE are both set in the environment, expected one of them")
    return world_size()


def create_group(group: str, rank_num: int, rank_ids: Iterable[int]) -> None:
    """Names a group of processes.

    Args:
        group: str, another name than "hccl_world_group".
        rank_num: int, how many.
        rank_ids: list of their ranks in the world, each once.

    Raises:
        ConfigError: the name is taken, or the ranks are not `rank_num` different ranks of this job.
    """
    if not isinstance(group, str) or group == WORLD or group in _groups:
        raise ConfigError("create_group: the group name %r is taken or no str" % (group,))
    ranks = tuple(rank_ids)
    if len(set(ranks)) != len(ranks) or len(ranks) != rank_num or not set(ranks) <= set(range(world_size())):
        raise ConfigError(
            "create_group: %r must be %r different ranks below RANK_SIZE=%d" % (rank_ids, rank_num, world_size())
        )
    _groups[group] = ranks


def destroy_group(group: str) -> None:
    """Forgets a group that `create_group` made.

    Raises:
        ConfigError: there is no group of this name.
    """
    members(group)
    if group == WORLD:
        raise ConfigError("destroy_group: %s cannot be destroyed" % WORLD)
    del _groups[group]
    _splits.pop(group, None)


def members(group: str = WORLD) -> tuple[int, ...]:
    """Returns the world ranks of a group, in the order of their ranks within it: tuple of int.

    Raises:
        ConfigError: there is no group of this name.
    """
    if group == WORLD:
        return tuple(range(world_size()))
    if group not in _groups:
        raise ConfigError("there is no group %r%s" % (group, nearest(group, [WORLD, *_groups])))
    return _groups[group]


def groups() -> list[str]:
    """Returns the names of all groups."""
    return [WORLD, *_groups]


def get_rank_size(group: str = WORLD) -> int:
    """Returns the number of processes in a group."""
    return len(members(group))


def get_rank_id(group: str = WORLD) -> int:
    """Returns this process's rank within a group.

    Raises:
        ConfigError: it is not in the group.
    """
    return get_group_rank_from_world_rank(world_rank(), group)


def get_local_rank_size(group: str = WORLD) -> int:
    """Returns how many processes of a group run on this machine; all of them where nothing says more."""
    job, size = description.job(os.environ), get_rank_size(group)
    if job.local_size is not None or not job.hosts or job.rank is None:
        return min(job.local_size or size, size)
    return min(_on_this_host(job, job.size), size)


def get_local_rank_id(group: str = WORLD) -> int:
    """Returns this process's rank among those of the group on its machine."""
    job, rank = description.job(os.environ), get_rank_id(group)
    if group != WORLD:
        return rank % get_local_rank_size(group)
    if job.local_rank is None and job.hosts:
        return _on_this_host(job, rank)
    return rank % get_local_rank_size() if job.local_rank is None else job.local_rank


def _on_this_host(job: description.Job, below: int) -> int:
    """How many of the ranks below a number are on this process's host, by the hosts of the job."""
    hosts = [description.host_of(host) for host in job.hosts]
    return hosts[:below].count(hosts[world_rank()])


def get_world_rank_from_group_rank(group: str, group_rank_id: int) -> int:
    """Returns the world rank of a group's process.

    Raises:
        ConfigError: the group has no such rank.
    """
    ranks = members(group)
    if not 0 <= group_rank_id < len(ranks):
        raise ConfigError("group %s has ranks below %d, got %r" % (group, len(ranks), group_rank_id))
    return ranks[group_rank_id]


def get_group_rank_from_world_rank(world_rank_id: int, group: str) -> int:
    """Returns the rank within a group of the process with this world rank.

    Raises:
        ConfigError: it is not in the group.
    """
    ranks = members(group)
    if world_rank_id not in ranks:
        raise ConfigError("rank %r is not in group %s, which has %s" % (world_rank_id, group, list(ranks)))
    return ranks.index(world_rank_id)


def set_split_strategy_by_idx(idxList: Iterable[int], group: str = WORLD) -> None:
    """Sets the numbers of the gradients after which a new allreduce begins, in the order of the backward pass.

    Raises:
        ConfigError: the numbers are not increasing.
    """
    numbers = list(idxList)
    if not numbers or any(b <= a for a, b in zip(numbers, numbers[1:])):
        raise ConfigError("set_split_strategy_by_idx: expected rising gradient numbers, got %r" % (idxList,))
    members(group)
    _splits[group] = ("idx", tuple(numbers))


def set_split_strategy_by_size(dataSizeList: Iterable[float], group: str = WORLD) -> None:
    """Sets each allreduce's share of the gradients' bytes, in percent, in the order of the backward pass.

    Raises:
        ConfigError: the shares do not add up to 100.
    """
    shares = list(dataSizeList)
    if not shares or min(shares) < 0 or abs(sum(shares) - 100) > 1e-6:
        raise ConfigError("set_split_strategy_by_size: shares must add up to 100, got %r" % (dataSizeList,))
    members(group)
    _splits[group] = ("size", tuple(shares))


def split_strategy(group: str = WORLD) -> tuple[str, tuple[float, ...]] | None:
    """Returns ("idx", gradient numbers) or ("size", percents) as set for a group, None where nothing is set."""
    return _splits.get(group)


def addresses() -> list[str]:
    """Returns the address of each rank's process, in rank order; as `description.addresses`."""
    return description.addresses(os.environ)


class NPUBasics:
    """The number of processes, as an object.

    Args:
        file_name: the job server's file, accepted but not read.
    """

    def __init__(self, file_name: str = "") -> None:
        self.file_name = file_name

    def size(self) -> int:
        """Returns the number of processes, 1 or more."""
        return world_size()
