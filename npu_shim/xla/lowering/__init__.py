"""Lowers ops that XLA has no kernel for to ordinary ones: `table.TABLE` has them, with the kernels they stand for.

    GraphDef with resource variables and v1 control flow -> lower -> the same, of ops that XLA compiles

A node keeps its name and its results; what it is made of is named below it, "<node>/lowered/...".
"""

from npu_shim.xla.lowering.lower import lower
from npu_shim.xla.lowering.table import TABLE

__all__ = ["TABLE", "lower"]
