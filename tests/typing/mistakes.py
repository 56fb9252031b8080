"""What typed code gets wrong: type checkers refuse each line that ends in `wrong`. See test_typed_consumer.py."""

from typing import Any

import npu_shim
from npu_shim import loss_scale


def mistaken(graph_def: Any, optimizer: Any) -> None:
    npu_shim.rewrit(graph_def, ["loss"])  # wrong
    npu_shim.enable(precision_mode=16)  # wrong
    npu_shim.Calibration("ten")  # wrong
    loss_scale.ExponentialUpdateLossScaleManager("2**15", 1000)  # wrong
    loss_scale.LosScaleOptimizer(optimizer, None)  # wrong
