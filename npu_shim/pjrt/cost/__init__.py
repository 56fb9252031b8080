"""The cost of a training step, estimated without a GPU: operations by dtype, bytes moved, memory.

Operations and live values are counted in the step's HLO before optimization, so they hold for every device. Bytes moved
and temporary memory are XLA's figures for the program compiled for the device at hand, which the report names.
"""

from npu_shim.pjrt.cost.report import Cost, as_json, as_text, of_folder

__all__ = ["Cost", "as_json", "as_text", "of_folder"]
