"""Variables: what reads and writes them, and when.

A variable is a cell of the Run by its name. The rules of order, each in its one place:

- Nodes that write run as late as the graph's edges allow, after the reads that do not follow them (`schedule`).
- Each of several updates of a variable counts (`schedule`, `own_updates`).
- A reference variable is memory: Identity, Reshape and the like hand it on, and it is read when a consumer that
  computes with it runs (`values.Reference`, VIEWS here). What is fetched of it is read last.
- A resource variable is read when its ReadVariableOp runs.
- In a conditional whose predicate is traced, a write keeps the old value where its side is not taken (`guards`).
"""

from __future__ import annotations

from typing import Any, Sequence

import jax.numpy as jnp
import numpy as np

from npu_shim.step.graph import Node
from npu_shim.step.refusals import Unsupported
from npu_shim.step.rules import indexing
from npu_shim.step.rules.table import Effect, Update
from npu_shim.step.values import Handle, Reference

VIEWS = frozenset([  # their output aliases the memory of their first input, as Identity's does
    "Reshape", "Squeeze", "ExpandDims", "StopGradient", "PreventGradient", "Snapshot", "CheckNumerics", "EnsureShape",
])  # fmt: skip


def key_of(raw: Any) -> str:
    """The cell of the variable that a handle or reference is."""
    if isinstance(raw, Reference) or (isinstance(raw, Handle) and raw.kind == "variable"):
        return raw.key
    raise Unsupported("it takes something else in the place of a variable")


def _value(scope: Any, raw: Any) -> Any:
    return scope.run.cells[key_of(raw)]


def _shape(scope: Any, node: Node, inputs: Sequence[Any]) -> Any:
    return np.array(_value(scope, inputs[0]).shape, node.attrs["out_type"])


def _gather(scope: Any, node: Node, inputs: Sequence[Any]) -> Any:
    indices = scope.value(inputs[1])
    rule = indexing.RULES["GatherV2"]
    axis = np.int32(node.attrs.get("batch_dims", 0))
    return scope.computed(rule, node, [_value(scope, inputs[0]), indices, axis])


def _gather_nd(scope: Any, node: Node, inputs: Sequence[Any]) -> Any:
    return scope.computed(indexing.RULES["GatherNd"], node, [_value(scope, inputs[0]), scope.value(inputs[1])])


def _count_up(scope: Any, node: Node, inputs: Sequence[Any]) -> Any:
    """CountUpTo and ResourceCountUpTo: the old value; a counter stays at its limit."""
    key = key_of(inputs[0])
    old = scope.run.cells[key]
    limit, one = np.array(node.attrs["limit"], old.dtype), np.ones((), old.dtype)
    scope.write(key, jnp.where(old < limit, old + one, old), scope.guard(node.name))
    return old


RULES = {
    "CountUpTo": Effect(_count_up, writes=True),
    "ResourceCountUpTo": Effect(_count_up, writes=True),
    "VariableV2": Effect(lambda scope, node, inputs: Reference(node.attrs["shared_name"])),
    "Variable": Effect(lambda scope, node, inputs: Reference(node.attrs["shared_name"])),
    "VarHandleOp": Effect(lambda scope, node, inputs: Handle("variable", node.attrs["shared_name"])),
    "ReadVariableOp": Effect(lambda scope, node, inputs: _value(scope, inputs[0])),
    "VarIsInitializedOp": Effect(lambda scope, node, inputs: np.bool_(True)),
    "IsVariableInitialized": Effect(lambda scope, node, inputs: np.bool_(True)),
    "VariableShape": Effect(_shape),
    "ResourceGather": Effect(_gather),
    "ResourceGatherNd": Effect(_gather_nd),
    "StridedSliceAssign": Update(indexing.strided_slice_assign, known=(3,)),
    "ResourceStridedSliceAssign": Update(indexing.strided_slice_assign, known=(3,)),
    "Assign": Update(lambda attrs, old, value: value),
    "AssignVariableOp": Update(lambda attrs, old, value: value),
    "AssignAdd": Update(lambda attrs, old, value: old + value),
    "AssignAddVariableOp": Update(lambda attrs, old, value: old + value),
    "AssignSub": Update(lambda attrs, old, value: old - value),
    "AssignSubVariableOp": Update(lambda attrs, old, value: old - value),
}
