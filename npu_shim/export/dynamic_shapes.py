"""Open sizes that XLA infers through broadcasts, written down for StableHLO, which does not infer them. No TensorFlow.

    a = f32[6,1] broadcast(f32[<=6,1] y)                          a = f32[<=6,1] broadcast(f32[<=6,1] y)
    b = f32[6] reshape(a)                            becomes      b = f32[<=6] reshape(a)
    c = f32[<=6,3] broadcast(b), dimensions={0}                   c = f32[<=6,3] broadcast(b), dimensions={0}

TensorFlow writes such broadcasts for tf.tile and for the softmax of tensors whose number of rows depends on the data.
"""

from __future__ import annotations

from typing import Any, Iterator


def written(module: Any) -> Any:
    """Marks the open sizes of what broadcasts give in a HloModuleProto, in place; returns it."""
    for computation in module.computations:
        shapes: dict[int, Any] = {}  # id of an instruction -> its shape
        marked: set[int] = set()
        for instruction in computation.instructions:  # operands come first
            shapes[instruction.id] = shape = instruction.shape
            if instruction.opcode != "broadcast" and not marked.intersection(instruction.operand_ids):
                continue
            for axis, made_axis in _axes(instruction, shapes):
                taken = shapes[instruction.operand_ids[0]]
                if taken.is_dynamic_dimension[axis] and taken.dimensions[axis] == shape.dimensions[made_axis]:
                    shape.is_dynamic_dimension[made_axis] = True
                    marked.add(instruction.id)
    return module


def _axes(instruction: Any, shapes: Any) -> Iterator[tuple[int, int]]:
    """(axis of its operand, axis of its result) for what a broadcast or reshape leaves as it is."""
    if instruction.opcode == "broadcast":
        return enumerate(instruction.dimensions)
    if instruction.opcode != "reshape":
        return iter(())
    taken, given = (_sizes(shape) for shape in (shapes[instruction.operand_ids[0]], instruction.shape))
    same = [taken[axis] for axis in taken] == [given[axis] for axis in given]
    return zip(taken, given) if same else iter(())


def _sizes(shape: Any) -> dict[int, int]:
    """Axis -> size, without axes of size 1."""
    return {axis: size for axis, size in enumerate(shape.dimensions) if size != 1}
