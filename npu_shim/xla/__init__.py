"""XLA: clusters inside the session (`marking`), a training step as one program (`step_function`)."""

from npu_shim.xla.marking import MARK, OPT_OUT, SWITCH, accelerator, log_clusters, mark, wanted

__all__ = ["MARK", "OPT_OUT", "SWITCH", "accelerator", "log_clusters", "mark", "wanted"]
