"""The face of the vendor's package `hccl`: ranks, groups and gradient splits; see npu_shim.ranks."""
