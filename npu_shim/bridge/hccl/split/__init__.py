"""hccl.split: how gradients are split into collectives."""
