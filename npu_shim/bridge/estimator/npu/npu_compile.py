"""npu_bridge.estimator.npu.npu_compile, which releases of 2020 had, see npu_shim.resources."""

from npu_shim.resources import npu_compile
