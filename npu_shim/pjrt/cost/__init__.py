"""What a training step costs, before anyone pays for a GPU: operations by dtype, bytes moved, memory.

Operations and live values are counted from the step's HLO before optimization: they hold for every device. Bytes moved
and temporary memory are XLA's, of the program compiled for the device at hand, which is named beside them.
"""

from npu_shim.pjrt.cost.report import Cost, as_json, as_text, of_folder

__all__ = ["Cost", "as_json", "as_text", "of_folder"]
