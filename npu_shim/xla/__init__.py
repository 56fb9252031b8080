"""XLA: clusters inside the session (`marking`), a training step as one program (`step_function`)."""

from npu_shim.xla.marking import MARK, MINIMUM_OPS, OPT_OUT, SWITCH, accelerator, log_clusters, mark, prepare, wanted

__all__ = ["MARK", "MINIMUM_OPS", "OPT_OUT", "SWITCH", "accelerator", "log_clusters", "mark", "prepare", "wanted"]
