"""XLA clusters inside the session."""

from npu_shim.session.clusters.marking import (
    MARK,
    MINIMUM_OPS,
    SWITCH,
    accelerator,
    log_clusters,
    mark,
    prepare,
    wanted,
)

__all__ = [
    "MARK", "MINIMUM_OPS", "SWITCH", "accelerator", "log_clusters", "mark", "prepare",
    "wanted",
]  # fmt: skip
