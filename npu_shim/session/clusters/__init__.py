"""XLA clusters inside the session."""

from npu_shim.session.clusters.marking import (
    MARK,
    MINIMUM_OPS,
    SWITCH,
    configure,
    log_clusters,
    mark,
    wanted,
)

__all__ = [
    "MARK", "MINIMUM_OPS", "SWITCH", "log_clusters", "mark", "configure",
    "wanted",
]  # fmt: skip
