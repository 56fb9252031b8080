"""Checkpoint migration between float32, float16 and bfloat16, and between optimizers' names."""

from __future__ import annotations

from typing import Any


def migrate_checkpoint(*args: Any, **kwargs: Any) -> Any:
    """See `npu_shim.checkpoint.migrate.migrate_checkpoint`; TensorFlow is imported by the first call."""
    from npu_shim.checkpoint import migrate

    return migrate.migrate_checkpoint(*args, **kwargs)
