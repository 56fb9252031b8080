"""Lowers ops that XLA has no kernel for to ordinary ops; `table.TABLE` lists them, with the kernels they follow.

    GraphDef with resource variables and v1 control flow -> lower -> the same, with ops that XLA compiles

A node keeps its name and its results; the ops that compute them are named below it, "<node>/lowered/...".
"""

from npu_shim.xla.passes.legalize.facts import UNIQUE
from npu_shim.xla.passes.legalize.lower import lower
from npu_shim.xla.passes.legalize.table import TABLE

OPS = UNIQUE.union(TABLE)

__all__ = ["OPS", "TABLE", "lower"]
