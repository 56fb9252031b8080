"""hccl.manage: ranks and groups."""
