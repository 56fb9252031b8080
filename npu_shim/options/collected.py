"""Names of the collections by which hooks, summaries and sessions find what a loss-scale optimizer made."""

GRADS_FINITE = "npu_shim/grads_finite"
LOSS_SCALE = "npu_shim/loss_scale"
SKIPPED_STEPS = "npu_shim/skipped_steps"
STEP_COUNTS = "npu_shim/step_counts"  # int64 tensors, see loss_scale.steps.counters
