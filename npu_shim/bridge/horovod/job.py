"""Who this process is in the job: Horovod's `init`, `rank` and `size` over `npu_shim.distributed.job.ranks`."""

from __future__ import annotations

from typing import Any

from npu_shim.distributed.job import ranks
from npu_shim.rewriter.errors import ConfigError

__all__ = [
    "ccl_built", "cross_rank", "cross_size", "cuda_built", "ddl_built", "gloo_built", "gloo_enabled", "init",
    "is_homogeneous", "is_initialized", "local_rank", "local_size", "mpi_built", "mpi_enabled",
    "mpi_threads_supported", "nccl_built", "rank", "rocm_built", "shutdown", "size",
]  # fmt: skip
_begun = False


def init(comm: Any = None, process_sets: Any = None) -> None:
    """Begins; the job is what `npu-shim launch` (or RANK_SIZE, TF_CONFIG, OpenMPI, SLURM) says.

    Raises:
        ConfigError: `comm` or `process_sets` names a part of the job, or the job's description cannot be read.
    """
    global _begun
    if comm or process_sets:
        raise ConfigError("hvd.init: comm and process_sets are not here: a job is all workers of npu-shim launch")
    ranks.world_rank()
    _begun = True


def shutdown() -> None:
    """Ends; sessions that have begun go on."""
    global _begun
    _begun = False


def is_initialized() -> bool:
    """Whether `init` was called."""
    return _begun


def size() -> int:
    """Returns the number of processes. Raises ValueError before `init`, as Horovod does."""
    _require_init()
    return ranks.world_size()


def rank() -> int:
    """Returns this process's number, from 0. Raises ValueError before `init`."""
    _require_init()
    return ranks.world_rank()


def local_size() -> int:
    """Returns the number of processes on this host. Raises ValueError before `init`."""
    _require_init()
    return ranks.get_local_rank_size()


def local_rank() -> int:
    """Returns this process's number among those of its host. Raises ValueError before `init`."""
    _require_init()
    return ranks.get_local_rank_id()


def cross_size() -> int:
    """Returns the number of hosts. Raises ValueError before `init`."""
    return -(-size() // local_size())


def cross_rank() -> int:
    """Returns this host's number. Raises ValueError before `init`."""
    return rank() // local_size()


def is_homogeneous() -> bool:
    """Whether every host has as many processes. Raises ValueError before `init`."""
    return size() % local_size() == 0


def _require_init() -> None:
    if not _begun:
        raise ValueError("Horovod has not been initialized; use hvd.init().")


def mpi_threads_supported() -> bool:
    """Returns False: no MPI is here, beside which a script could use mpi4py. Raises ValueError before `init`."""
    _require_init()
    return False


def nccl_built() -> int:
    """Returns 0, where a Horovod that has NCCL names its version."""
    return 0


def _no() -> bool:
    """Returns False: what the name asks about is not here."""
    return False


mpi_enabled = mpi_built = gloo_enabled = gloo_built = ddl_built = ccl_built = cuda_built = rocm_built = _no
