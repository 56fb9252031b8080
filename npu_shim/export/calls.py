"""Calls of attention's functions in a program, by name. No TensorFlow.

    c = conditional(0, tuple(q, k, v)), branches={name__.16}    becomes    c = call(q, k, v), to_apply=name

XLA's bridge inlines plain calls; what it makes of a Case with one branch keeps the function's name, until a converter
makes a nameless region of it. All calls of one function call one computation.
"""

from __future__ import annotations

import re
from typing import Any, Mapping

from npu_shim.pjrt.attention.spec import PREFIX

NAME = re.compile(r"^(%s(?:forward|backward)_[0-9a-f]{16}(?:_[0-9a-f]{16})?)" % PREFIX)  # of the step's library


def by_name(module: Any) -> Any:
    """Makes one-branch conditionals of attention's functions calls of them, in place; returns the HloModuleProto."""
    computations = {computation.id: computation for computation in module.computations}
    targets: dict[str, int] = {}  # function -> the computation that stands for it
    gone = set()
    for computation in module.computations:
        instructions = {instruction.id: instruction for instruction in computation.instructions}
        for instruction in computation.instructions:
            name = _called(instruction, instructions, computations)
            if name:
                branch = instruction.called_computation_ids[0]
                if targets.setdefault(name, branch) != branch:
                    gone.add(branch)
                _call(instruction, instructions[instruction.operand_ids[1]], targets[name])
    for name, number in targets.items():
        _flatten(computations[number], _next_id(module))
        computations[number].name = name
    _remove(module, gone)
    return module


def _called(instruction: Any, instructions: Mapping[int, Any], computations: Mapping[int, Any]) -> str:
    """The function that a conditional with one branch calls, "" for another instruction."""
    if instruction.opcode != "conditional" or len(instruction.called_computation_ids) != 1:
        return ""
    match = NAME.match(computations[instruction.called_computation_ids[0]].name)
    return match[1] if match and instructions[instruction.operand_ids[1]].opcode == "tuple" else ""


def _call(instruction: Any, arguments: Any, target: int) -> None:
    instruction.opcode = "call"
    instruction.operand_ids[:] = arguments.operand_ids
    instruction.called_computation_ids[:] = [target]


def _flatten(computation: Any, free: int) -> None:
    """Gives a computation of one tuple the tuple's elements as parameters."""
    whole = next(instruction for instruction in computation.instructions if instruction.opcode == "parameter")
    shapes = list(whole.shape.tuple_shapes)
    first: dict[int, int] = {}  # number of an element -> the instruction that stands for it
    same: dict[int, int] = {}
    for instruction in computation.instructions:
        if instruction.opcode == "get-tuple-element" and list(instruction.operand_ids) == [whole.id]:
            same[instruction.id] = first.setdefault(instruction.tuple_index, instruction.id)
    doubles = {number for number, stands_for in same.items() if number != stands_for} | {whole.id}
    kept = [instruction for instruction in computation.instructions if instruction.id not in doubles]
    for instruction in kept:
        if instruction.id in same:
            _become_parameter(instruction, instruction.tuple_index)
        instruction.operand_ids[:] = [same.get(number, number) for number in instruction.operand_ids]
    unread = []
    for number, shape in enumerate(shapes):
        if number not in first:  # an argument that the function does not read
            unread.append(type(whole)(name="unread.%d" % free, id=free))
            unread[-1].shape.CopyFrom(shape)
            _become_parameter(unread[-1], number)
            free += 1
    kept = [*unread, *[type(whole).FromString(instruction.SerializeToString()) for instruction in kept]]
    del computation.instructions[:]
    computation.instructions.extend(kept)
    del computation.program_shape.parameters[:], computation.program_shape.parameter_names[:]
    computation.program_shape.parameters.extend(shapes)
    computation.program_shape.parameter_names.extend("argument_%d" % number for number in range(len(shapes)))


def _become_parameter(instruction: Any, number: int) -> None:
    instruction.opcode = "parameter"
    instruction.parameter_number = number
    instruction.ClearField("tuple_index")
    instruction.ClearField("operand_ids")


def _next_id(module: Any) -> int:
    ids = (instruction.id for computation in module.computations for instruction in computation.instructions)
    return int(max(ids)) + 1


def _remove(module: Any, gone: set[int]) -> None:
    """Removes computations, and those that nothing calls without them."""
    while gone:
        left = [computation for computation in module.computations if computation.id not in gone]
        called = {number for computation in left for instruction in computation.instructions
                  for number in instruction.called_computation_ids}  # fmt: skip
        lost = {number for computation in module.computations if computation.id in gone
                for instruction in computation.instructions
                for number in instruction.called_computation_ids}  # fmt: skip
        kept = [type(computation).FromString(computation.SerializeToString()) for computation in left]
        del module.computations[:]
        module.computations.extend(kept)
        gone = lost - called
