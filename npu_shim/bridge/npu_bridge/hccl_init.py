"""npu_bridge.hccl_init, which releases before 2021 had; importing npu_bridge.npu_init does what it did."""

from npu_bridge.npu_init import *
