"""Rules by family: a file holds a dict RULES, op -> row (`table`); `npu_shim.step.ops` lists the families."""
