"""What describes a job of several processes: how many there are, which one this is, and where each of them is.

SOURCES are asked from first to last, and the first that says something describes the whole job: what somebody has set
for this job goes before what a launcher sets for all. Of OpenMPI and SLURM the first is the inner one: mpirun runs
inside of SLURM's jobs. NPU_SHIM_HOSTS, DEVICE_ID and LOCAL_RANK_SIZE complete or correct any source. Everything is read
from an environment and the files that it names. Standard library only.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from typing import Any, Callable, Mapping, Sequence

from npu_shim.distributed.job import rank_table
from npu_shim.rewriter.errors import ConfigError

Environment = Mapping[str, str]

HOSTS = "NPU_SHIM_HOSTS"
SIZE, RANK = ("RANK_SIZE", "CM_WORKER_SIZE"), ("RANK_ID", "CM_RANK_ID")
DEVICE, LOCAL_SIZE = ("DEVICE_ID", "ASCEND_DEVICE_ID"), ("LOCAL_RANK_SIZE",)
CHIEFS = ("chief", "master")  # a job of TF_CONFIG's cluster with one task, which comes before the workers
ONE_HOST = "localhost"
FIRST_PORT = 28700


@dataclasses.dataclass(frozen=True)
class Job:
    """A job as one process of it sees it.

    Attributes:
        source: what says so, as messages name it.
        size: the number of processes, 1 or more.
        rank: this one's number from 0, None where the source does not say.
        hosts: "host" or "host:port" of each rank; empty where the source does not say.
        local_rank: this one's number on its machine, None where the source does not say.
        local_size: how many run on this machine, likewise.
    """

    source: str
    size: int = 1
    rank: int | None = None
    hosts: tuple[str, ...] = ()
    local_rank: int | None = None
    local_size: int | None = None


def job(environment: Environment) -> Job:
    """Returns the Job that an environment describes; one process, rank 0, where it describes none.

    Raises:
        ConfigError: the source that counts is incomplete or cannot be read; the error names it.
    """
    known = next(filter(None, (read(environment) for read in SOURCES)), Job(SIZE[0]))
    rank = _number(environment, RANK) if known.rank is None else known.rank
    device, local_size = _number(environment, DEVICE), _number(environment, LOCAL_SIZE)
    hosts = _given_hosts(environment, known.size) if environment.get(HOSTS) and known.size > 1 else known.hosts
    return dataclasses.replace(
        known,
        rank=rank,
        hosts=hosts,
        local_rank=known.local_rank if device is None else device,
        local_size=known.local_size if local_size is None else local_size,
    )


def _given_hosts(environment: Environment, size: int) -> tuple[str, ...]:
    hosts = tuple(word.strip() for word in environment[HOSTS].split(","))
    if len(hosts) != size or not all(hosts):
        words = (HOSTS, len(hosts), size, environment[HOSTS])
        raise ConfigError("%s has %d addresses for RANK_SIZE=%d ranks: %s" % words)
    return hosts


def addresses(environment: Environment) -> list[str]:
    """Returns the address of each rank, in rank order: list of "host:port".

    NPU_SHIM_HOSTS has them, or what describes the job has the hosts, or all are on this machine. A host without a port
    has NPU_SHIM_PORT (28700) plus the rank. Errors as `job`.
    """
    known = job(environment)
    first = first_port(environment)
    hosts = known.hosts or (ONE_HOST,) * known.size
    return [host if has_port(host) else "%s:%d" % (host, first + rank) for rank, host in enumerate(hosts)]


def first_port(environment: Environment) -> int:
    """Returns the port of rank 0 where nothing else is said: NPU_SHIM_PORT, or 28700."""
    port = _number(environment, ("NPU_SHIM_PORT",))
    return FIRST_PORT if port is None else port


def host_of(address: str) -> str:
    """Returns the host of "host", "host:port" or "[::1]:port"."""
    host, colon, port = address.rpartition(":")
    return host if colon and port.isdigit() and (":" not in host or host.endswith("]")) else address


def has_port(address: str) -> bool:
    """Whether an address is "host:port"."""
    return host_of(address) != address


# each reads one source: Environment -> Job, or None where it says nothing


def _variables(environment: Environment) -> Job | None:
    """RANK_SIZE=8 RANK_ID=3, which the vendor's scripts export; a rank table beside them has the hosts."""
    size = _number(environment, SIZE)
    if size is None:
        return None
    name = next(name for name in SIZE if environment.get(name))
    if size <= 1:
        return Job(name)
    table = None if environment.get(HOSTS) else rank_table.named(environment)
    if table is None:
        return Job(name, size)
    if len(table.hosts) != size:
        words = (rank_table.VARIABLE, environment[rank_table.VARIABLE], len(table.hosts), name, size)
        raise ConfigError("%s: '%s' has %d devices, but %s=%d" % words)
    return Job(name, size, _rank_in(table, environment), table.hosts)


def _rank_table(environment: Environment) -> Job | None:
    """RANK_TABLE_FILE alone: its devices are the ranks."""
    table = rank_table.named(environment)
    if table is None:
        return None
    return Job(rank_table.VARIABLE, len(table.hosts), _rank_in(table, environment), table.hosts)


def _rank_in(table: rank_table.RankTable, environment: Environment) -> int | None:
    """The rank of DEVICE_ID, where the table has one machine; RANK_ID goes before."""
    device = _number(environment, DEVICE)
    if _number(environment, RANK) is not None or device is None or len(set(table.hosts)) != 1:
        return None
    return table.devices.index(device) if device in table.devices else None


def of_tf_config(environment: Environment) -> Job | None:
    """TF_CONFIG of workers that reduce among themselves; with parameter servers it is for TensorFlow alone."""
    if not (environment.get("TF_CONFIG") or "").strip():
        return None
    config = _json_object(environment["TF_CONFIG"], "TF_CONFIG")
    cluster, task = config.get("cluster") or {}, config.get("task") or {}
    chiefs = [address for name in CHIEFS for address in _addresses(cluster, name)]
    hosts = (*chiefs, *_addresses(cluster, "worker"))
    if len(hosts) < 2 or cluster.get("ps") or task.get("type") in ("ps", "evaluator"):
        return None
    jobs = {**dict.fromkeys(CHIEFS, 0), "worker": len(chiefs)}
    kind, index = task.get("type"), task.get("index", 0)
    if kind not in jobs or not cluster.get(kind) or not str(index).isdigit() or int(index) >= len(cluster[kind]):
        raise ConfigError("TF_CONFIG: task %s is none of its cluster %s" % (json.dumps(task), json.dumps(cluster)))
    return Job("TF_CONFIG", len(hosts), jobs[kind] + int(index), hosts)


def _addresses(cluster: Any, name: str) -> list[str]:
    given = cluster.get(name) or [] if isinstance(cluster, dict) else None
    if not isinstance(given, list) or not all(isinstance(address, str) for address in given):
        text = "TF_CONFIG: expected {\"cluster\": {\"worker\": [\"host:port\", ...]}, ...}, got the cluster %s"
        raise ConfigError(text % json.dumps(cluster))
    return given


def _openmpi(environment: Environment) -> Job | None:
    """What mpirun sets. It says nothing of the other machines."""
    names = ["OMPI_COMM_WORLD_" + name for name in ("SIZE", "RANK", "LOCAL_RANK", "LOCAL_SIZE")]
    size, rank, local_rank, local_size = (_number(environment, [name]) for name in names)
    if size is None:
        return None
    if rank is None:
        raise ConfigError("%s=%d needs %s" % (names[0], size, names[1]))
    if size > 1 and local_size not in (None, size) and not environment.get(HOSTS):
        words = (names[0], size, names[3], local_size, HOSTS)
        raise ConfigError(
            "%s=%d and %s=%d: OpenMPI does not say where the other machines are; set %s=host:port,... for each "
            "rank, the same on all" % words
        )
    return Job(names[0], size, rank, (ONE_HOST,) * size, local_rank, local_size)


def _slurm(environment: Environment) -> Job | None:
    """What srun sets for each task; a batch script, which is no task of a step, is one process."""
    rank = _number(environment, ["SLURM_PROCID"])
    name = next((n for n in ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS") if environment.get(n)), None)
    in_batch_script = environment.get("ENVIRONMENT") == "BATCH" and not environment.get("SLURM_STEP_ID")
    if rank is None or name is None or in_batch_script:
        return None
    size, local_rank = int(_number(environment, [name]) or 1), _number(environment, ["SLURM_LOCALID"])
    if size <= 1:
        return Job(name)
    hosts = () if environment.get(HOSTS) else _slurm_hosts(environment, size, rank)
    return Job(name, size, rank, hosts, local_rank)


def _slurm_hosts(environment: Environment, size: int, rank: int) -> tuple[str, ...]:
    """The host of each task, by block or cyclic distribution; checked against what SLURM says of this task."""
    listed = _first(environment, ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"))
    if listed is None:
        raise ConfigError("SLURM_PROCID=%d of %d tasks needs SLURM_JOB_NODELIST" % (rank, size))
    nodes = expanded(*listed)
    counted = _first(environment, ("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"))
    counts = tasks_per_node(*counted) if counted else [len(range(i, size, len(nodes))) for i in range(len(nodes))]
    if (environment.get("SLURM_DISTRIBUTION") or "block").startswith("cyclic"):
        rounds = [[node for node, count in enumerate(counts) if count > turn] for turn in range(max(counts))]
        order = list(itertools.chain.from_iterable(rounds))
    else:
        order = [node for node, count in enumerate(counts) for _ in range(count)]
    told = _number(environment, ["SLURM_NODEID"])
    fits = len(order) == size and max(order, default=0) < len(nodes)
    if not fits or (told is not None and rank < size and order[rank] != told):
        words = (size, listed[1], counted[1] if counted else "unknown", HOSTS)
        raise ConfigError(
            "SLURM: %d tasks on the nodes %s with %s tasks per node: which task is on which node cannot be told; set "
            "%s=host:port,... for each rank, the same on all" % words
        )
    return tuple(nodes[node] for node in order)


SOURCES: tuple[Callable[[Environment], Job | None], ...] = (_variables, _rank_table, of_tf_config, _openmpi, _slurm)


def expanded(name: str, text: str) -> list[str]:
    """Returns the hosts of SLURM's list: "a[01-03,7],b" is a01, a02, a03, a7, b.

    Args:
        name: the variable that it stands in.
        text: the list.

    Raises:
        ConfigError: it is no such list.
    """
    words = re.findall(r"(?:[^\[\],\s]|\[[^\[\]]*\])+", text)
    if ",".join(words) != text or not words:
        raise ConfigError("%s='%s' in the environment is not a host list such as node[01-03,7],other" % (name, text))
    return [host for word in words for host in _hosts_of(name, word)]


def _hosts_of(name: str, word: str) -> list[str]:
    parts = re.split(r"\[(.*?)\]", word)  # plain, inside of brackets, plain, ...
    choices = [_numbers(name, part) if place % 2 else [part] for place, part in enumerate(parts)]
    return ["".join(parts) for parts in itertools.product(*choices)]


def _numbers(name: str, text: str) -> list[str]:
    """The numbers of "01-03,7", as wide as they are written."""
    numbers = []
    for word in text.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", word)
        if not match or int(match.group(2) or match.group(1)) < int(match.group(1)):
            raise ConfigError("%s in the environment has '[%s]', expected numbers such as [01-03,7]" % (name, text))
        first, last = match.group(1), match.group(2) or match.group(1)
        numbers += ["%0*d" % (len(first), number) for number in range(int(first), int(last) + 1)]
    return numbers


def tasks_per_node(name: str, text: str) -> list[int]:
    """Returns how many tasks each node has: "2(x3),1" is 2, 2, 2, 1. Arguments and errors as `expanded`."""
    counts = []
    for word in text.split(","):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", word)
        if not match:
            raise ConfigError("%s='%s' in the environment: expected counts such as 2(x3),1" % (name, text))
        counts += [int(match.group(1))] * int(match.group(2) or 1)
    return counts


def _first(environment: Environment, names: Sequence[str]) -> tuple[str, str] | None:
    """The first of some variables that is set: its name and its value."""
    return next(((name, environment[name]) for name in names if environment.get(name)), None)


def _number(environment: Environment, names: Sequence[str]) -> int | None:
    """The first of some variables that is set, as a whole number."""
    first = _first(environment, names)
    if first is None:
        return None
    try:
        return int(first[1])
    except ValueError:
        raise ConfigError("%s=%r in the environment is not a whole number" % first) from None


def _json_object(text: str, name: str) -> dict[str, Any]:
    try:
        parsed = json.loads(text)
    except ValueError as error:
        raise ConfigError("%s in the environment is not JSON: %s" % (name, error)) from None
    if not isinstance(parsed, dict):
        raise ConfigError("%s in the environment: expected a JSON object, got %s" % (name, text))
    return parsed
