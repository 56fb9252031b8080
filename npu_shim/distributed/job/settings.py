"""How gradients travel, from the environment. Standard library only.

The graph holds the collectives before any session has a config, so these are no keys of the parameter_map.
"""

from __future__ import annotations

import os
from typing import Sequence

from npu_shim.rewriter.errors import ConfigError, nearest

BUCKET, DTYPE, SUMS = "NPU_SHIM_BUCKET_MB", "NPU_SHIM_GRADIENT_DTYPE", "NPU_SHIM_GRADIENT_SUMS"
GPUS = "NPU_SHIM_GPU_COLLECTIVES"
A_RANK_MB, MOST_MB = 2.0, 32.0  # of a bucket, see benchmarks/scale_out.md
DTYPES, SUM_DTYPES, WAYS = ("own", "float16", "bfloat16"), ("own", "float32"), ("nccl", "ring")


def default_bucket_bytes(size: int) -> int:
    """Returns `bucket_bytes` of `size` ranks where the environment does not say it."""
    return int(min(size * A_RANK_MB, MOST_MB) * 2**20)


def bucket_bytes(size: int) -> int:
    """Returns the bytes at which a bucket is full, that a group of `size` ranks moves.

    It is NPU_SHIM_BUCKET_MB (2**20 bytes each), 0 for no fusion; else 2 MB for each rank, at most 32 MB: more ranks
    make more latencies in a ring, and laying tensors end to end to save some costs two copies of them.

    Raises:
        ConfigError: the environment says no number, or a negative one.
    """
    text = os.environ.get(BUCKET)
    if not text:
        return default_bucket_bytes(size)
    try:
        megabytes = float(text)
    except ValueError:
        megabytes = -1.0
    if not 0 <= megabytes < float("inf"):
        raise ConfigError("%s=%r in the environment is not a number of megabytes, expected 0 or more" % (BUCKET, text))
    return int(megabytes * 2**20)


def gradient_dtype() -> str:
    """Returns the dtype in which float32 gradients travel: "own" (float32), "float16" or "bfloat16".

    Raises:
        ConfigError: another word in NPU_SHIM_GRADIENT_DTYPE.
    """
    return _word(DTYPE, DTYPES)


def sums_are_float32() -> bool:
    """Whether gradients that travel in 16 bits are summed in float32 and rounded once, or else in their own dtype.

    Raises:
        ConfigError: another word than "own" or "float32" in NPU_SHIM_GRADIENT_SUMS.
    """
    return _word(SUMS, SUM_DTYPES) == "float32"


def gpus_use_nccl() -> bool:
    """Whether GPUs meet by NCCL, or else by TensorFlow's rings over gRPC.

    Raises:
        ConfigError: another word than "nccl" or "ring" in NPU_SHIM_GPU_COLLECTIVES.
    """
    return _word(GPUS, WAYS) == "nccl"


def way() -> str:
    """Returns how gradients travel and are summed, in words: collectives that go other ways never meet."""
    return "%s, summed in %s" % (gradient_dtype(), "float32" if sums_are_float32() else "own")


def _word(variable: str, known: Sequence[str]) -> str:
    text = os.environ.get(variable) or known[0]
    if text not in known:
        words = (variable, text, ", ".join(known), nearest(text, known))
        raise ConfigError("%s=%r in the environment is unknown, expected one of %s%s" % words)
    return text
