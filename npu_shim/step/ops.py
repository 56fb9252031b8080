"""The table: op -> row. A family is a file with a dict RULES."""

from __future__ import annotations

from typing import Any, Mapping

from npu_shim.step import checks, rows, state
from npu_shim.step.branches import APART
from npu_shim.step.containers import arrays as tensor_arrays
from npu_shim.step.containers import lists, optionals, stacks
from npu_shim.step.control_flow import calls, nodes
from npu_shim.step.random import draws
from npu_shim.step.rules import (
    arrays,
    attention,
    boxes,
    colors,
    convolutions,
    ctc,
    elementwise,
    exchanges,
    image,
    indexing,
    linear_algebra,
    morphology,
    nn,
    normalization,
    products,
    quantized,
    recurrent,
    reductions,
    segments,
    sparse,
    sparse_parts,
    updates,
)

FAMILIES = (
    nodes, checks, calls, state, stacks, tensor_arrays, lists, optionals, draws, rows,
    arrays, elementwise, indexing, reductions, segments, products, nn, convolutions, normalization, updates,
    linear_algebra, sparse, sparse_parts, image, colors, boxes, morphology, recurrent, ctc, quantized, attention,
    exchanges,
)  # fmt: skip


def _joined() -> Mapping[str, Any]:
    table: dict[str, Any] = {}
    for family in FAMILIES:
        twice = table.keys() & family.RULES.keys()
        if twice:
            raise ValueError(
                "%s has rows of %s, which another family has" % (family.__name__, ", ".join(sorted(twice)))
            )
        table.update(family.RULES)
    return table


TABLE: Mapping[str, Any] = _joined()

_SLOW = frozenset(["Betainc", "Igamma", "Igammac", "Polygamma", "Zeta"])
_NAMES = frozenset(["ReadVariableOp", "VariableV2", "VarHandleOp", "StackV2", "TensorArrayV3", "TensorArrayReadV3"])
_PLAIN = frozenset(op for family in (nodes, checks, arrays, elementwise) for op in family.RULES)
LIGHT = (_PLAIN | _NAMES | APART) - _SLOW  # what XLA computes in passing, or when it compiles
