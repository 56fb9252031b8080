"""Bytes that an instruction of a compiled program reads and writes.

Each operand once, each result once, but

- of what is only sliced or gathered from: the slices;
- of what an update is written into in its place: the update.

A fusion is one instruction; what it does with an operand is looked up in its computation. XLA's copy insertion sees to
it that updates happen in place.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Iterable, Mapping

from npu_shim.pjrt.cost.hlo import Instruction, Module

VIEWS = ("bitcast", "reshape")
SLICES = ("slice", "dynamic-slice", "gather")


def moved(module: Module, operands: Mapping[str, Instruction], instruction: Instruction) -> float:
    """Returns the bytes that an instruction reads and writes.

    Args:
        module: the hlo.Module.
        operands: the instructions of its computation by name.
        instruction: it.
    """
    inside, root = body(module, operands, instruction)
    sources = {name: instruction.bytes for name, instruction in inside.items() if instruction.code == "parameter"}
    return _read(inside, sources, root) + sum(_written(inside, name) for name in _results(inside, root))


def body(
    module: Module, operands: Mapping[str, Instruction], instruction: Instruction
) -> tuple[Mapping[str, Instruction], str]:
    """Returns (instructions, root): a fusion's computation; of another instruction it, its operands as parameters."""
    if "calls" in instruction.called:
        computation = module.computations[instruction.called["calls"][0]]
        return computation.instructions, computation.root
    given = {name: replace(operands[name], code="parameter", operands=()) for name in instruction.operands}
    return dict(given, **{instruction.name: instruction}), instruction.name


def updates(instruction: Instruction) -> tuple[str, ...]:
    """Returns the operands that an update in place writes; () for what is none."""
    if instruction.code == "dynamic-update-slice":
        return instruction.operands[1:2]
    if instruction.code == "scatter":  # targets, indices, updates
        return instruction.operands[len(instruction.operands) // 2 + 1 :]
    return ()


def _results(inside: Mapping[str, Instruction], root: str) -> Iterable[str]:
    return inside[root].operands if inside[root].code == "tuple" else (root,)


def _through(inside: Mapping[str, Instruction], name: str) -> str:
    """What a view is a view of."""
    while name in inside and inside[name].code in VIEWS:
        name = inside[name].operands[0]
    return name


def _written(inside: Mapping[str, Instruction], name: str) -> float:
    name = _through(inside, name)
    return _updated(inside, inside[name]) if updates(inside[name]) else _result_bytes(inside[name])


def _result_bytes(instruction: Instruction) -> float:
    """Bytes of a result, without the space that NVIDIA's libraries are lent."""
    shapes = instruction.shapes
    if instruction.code == "custom-call" and len(shapes) > 1 and shapes[-1].dtype in ("s8", "u8"):
        shapes = shapes[:-1]
    return sum(shape.bytes for shape in shapes)


def _updated(inside: Mapping[str, Instruction], instruction: Instruction) -> float:
    return sum(inside[name].bytes for name in updates(instruction))


def _read(inside: Mapping[str, Instruction], sources: Mapping[str, float], root: str) -> float:
    users = defaultdict(list)
    for name, instruction in inside.items():
        for operand in dict.fromkeys(instruction.operands):
            if instruction.code not in VIEWS or name == root:
                users[_through(inside, operand)].append(instruction)
    return sum(min(size, sum(_use(inside, name, user, size) for user in users[name])) for name, size in sources.items())


def _use(inside: Mapping[str, Instruction], source: str, user: Instruction, size: float) -> float:
    """Bytes that an instruction reads of a source of that size."""
    places = [at for at, operand in enumerate(user.operands) if _through(inside, operand) == source]
    if user.code in SLICES and places == [0]:
        return user.bytes
    targets = len(user.operands[: len(updates(user))])
    if targets and all(at < targets for at in places):
        return _updated(inside, user) if user.code == "scatter" else 0  # a scatter adds to what is there
    return size
