"""Refuses what XLA computes wrongly where a size depends on the data, by the HLO that shows which sizes do.

    y = f32[<=1,3]        reshape(f32[2,<=1,3] broadcast(y))  is  f32[2,<=3], expected f32[<=2,3]

Which size of a reshape's result is open follows from the sizes before and behind it, and a size of 1 can belong to
either: XLA loses track of one that is at most 1. The softmax or the gradients of such a tensor have wrong values
(TensorFlow 2.15.1, and JAX of the same year). `y[:1]` of rows that a mask chooses is one; so is a mask of one row.
"""

from __future__ import annotations

import re
from typing import Any, Iterator

from npu_shim.rewriter.errors import PlanError
from npu_shim.xla.tracing import SCOPE

IN_SESSION = "run the step in a session"


def require_bounds(module: Any) -> None:
    """Raises PlanError for an open size of at most 1; `module` is the HloModuleProto of a step, not yet optimized."""
    for instruction in _instructions(module):
        if any(is_open and size == 1 for is_open, size in _sizes(instruction.shape)):
            text = "node '%s' gives one row or none, which depends on the data: compiled by XLA it has wrong values; %s"
            raise PlanError(text % (_name(instruction), IN_SESSION))


def require_counts_of_loops(module: Any) -> None:
    """Raises PlanError for a loop whose body gives a number of rows that depends on the data, where it begins with all.

    XLA gives the loop's variable the type that it begins with, and so all rows in the end.
    """
    computations = {computation.id: computation for computation in module.computations}
    for instruction in _instructions(module):
        if instruction.opcode == "while":
            roots = [_root(computations[number]) for number in instruction.called_computation_ids]
            body = next(root for root in roots if root.shape.tuple_shapes)  # the condition gives a truth value
            pairs = zip(_sizes(instruction.shape), _sizes(body.shape))
            if any(given and not taken for (taken, _), (given, _) in pairs):
                text = "node '%s', a loop, has a variable whose number of rows depends on the data behind an iteration"
                raise PlanError((text + ", which XLA does not count; %s") % (_name(instruction), IN_SESSION))


def require_equal_branches(module: Any) -> None:
    """Raises PlanError for a conditional that counts rows of which its first branch has all: StableHLO loses the count.

    Its result has the type of the first branch.
    """
    computations = {computation.id: computation for computation in module.computations}
    for instruction in _instructions(module):
        if instruction.opcode == "conditional":
            first = _root(computations[instruction.called_computation_ids[0]])
            counted, given = ([is_open for is_open, _ in _sizes(source.shape)] for source in (instruction, first))
            if counted != given and any(counted):
                text = "node '%s' gives a number of rows that depends on the data in one branch, all rows in the first"
                raise PlanError((text + ", which this XLA does not compile; %s") % (_name(instruction), IN_SESSION))


def require_sized_branches(module: Any) -> None:
    """Raises PlanError for a conditional that gives an open size.

    It is for a step where shape inference does not tell whether branches give the same sizes (`StepFunction.unsized`):
    what takes the rows of such a conditional was not looked at, and may take padding for rows.
    """
    for instruction in _instructions(module):
        if instruction.opcode == "conditional" and any(is_open for is_open, _ in _sizes(instruction.shape)):
            text = "node '%s' is a conditional whose branches give different numbers of rows, by the value of a feed: "
            text += "compiled by XLA, what takes them may take rows that are not there; write x[:n], or %s"
            raise PlanError(text % (_name(instruction), IN_SESSION))


def _instructions(module: Any) -> Iterator[Any]:
    """The instructions of a module, those of the step before those of its loops and branches."""
    return (instruction for computation in reversed(module.computations) for instruction in computation.instructions)


def _root(computation: Any) -> Any:
    return next(instruction for instruction in computation.instructions if instruction.id == computation.root_id)


def _sizes(shape: Any) -> Iterator[tuple[bool, int]]:
    """(Whether it is open, its bound) of each size of a value, which may be a tuple."""
    yield from zip(shape.is_dynamic_dimension, shape.dimensions)
    for part in shape.tuple_shapes:
        yield from _sizes(part)


def _name(instruction: Any) -> str:
    """The name of the node that an instruction is of."""
    return re.sub(r"^\S*?\b%s/" % SCOPE, "", instruction.metadata.op_name) or str(instruction.name)
