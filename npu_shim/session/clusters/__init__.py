"""XLA: clusters inside the session (`marking`), a training step as one program (`step_function`)."""

from npu_shim.session.clusters.conditionals import EQUAL_SHAPES
from npu_shim.session.clusters.marking import (
    MARK,
    MINIMUM_OPS,
    OPT_OUT,
    SWITCH,
    accelerator,
    log_clusters,
    mark,
    prepare,
    wanted,
)

__all__ = [
    "EQUAL_SHAPES", "MARK", "MINIMUM_OPS", "OPT_OUT", "SWITCH", "accelerator", "log_clusters", "mark", "prepare",
    "wanted",
]  # fmt: skip
