"""XLA: clusters inside the session (`marking`), and a training step as one program (`step_function`, `compiled_step`)."""

from npu_shim.xla.marking import MARK, OPT_OUT, SWITCH, accelerator, log_clusters, mark, wanted

__all__ = ["MARK", "OPT_OUT", "SWITCH", "accelerator", "log_clusters", "mark", "wanted"]
