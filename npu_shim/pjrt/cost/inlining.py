"""Inlines the calls of an HLO module: JAX makes functions of what a program does in several places.

    c = f32[4] call(x, y), to_apply=f      becomes      the instructions of f, with x and y for its parameters

XLA does so too when it compiles. Calls of attention's functions stay: they may be kernels.
"""

from __future__ import annotations

import re
from dataclasses import replace

from npu_shim.pjrt.attention.spec import PREFIX
from npu_shim.pjrt.cost.hlo import Computation, Instruction, Module

INDEX = re.compile(r"index=(\d+)")


def inlined(module: Module) -> Module:
    """Returns the module without calls; each instruction of a callee is called after the call, and itself."""
    done: dict[str, Computation] = {}
    for name in module.computations:
        _inlined(module, name, done)
    return replace(module, computations=done)


def _inlined(module: Module, name: str, done: dict[str, Computation]) -> Computation:
    if name not in done:
        computation = module.computations[name]
        kept: dict[str, Instruction] = {}
        stands_for: dict[str, str] = {}  # what calls and their elements are called now
        for instruction in computation.instructions.values():
            operands = tuple(stands_for.get(operand, operand) for operand in instruction.operands)
            moved = replace(instruction, operands=operands)
            callee = _callee(moved)
            if callee:
                stands_for[moved.name] = _put(kept, moved, _inlined(module, callee, done))
            elif moved.code == "get-tuple-element" and instruction.operands[0] in stands_for:
                stands_for[moved.name] = _element(kept, moved)
            else:
                kept[moved.name] = moved
        done[name] = Computation(name, kept, stands_for.get(computation.root, computation.root))
    return done[name]


def _callee(instruction: Instruction) -> str:
    """The computation that an instruction calls and that is inlined, "" for none."""
    if instruction.code != "call" or "to_apply" not in instruction.called:
        return ""
    (name,) = instruction.called["to_apply"]
    return "" if name.startswith(PREFIX) else name


def _put(kept: dict[str, Instruction], call: Instruction, callee: Computation) -> str:
    """Adds the instructions of a callee; returns the name of what it gives."""
    names: dict[str, str] = {}
    for inner in callee.instructions.values():
        if inner.code == "parameter":
            names[inner.name] = call.operands[int(inner.argument)]
            continue
        names[inner.name] = name = "%s/%s" % (call.name, inner.name)
        kept[name] = replace(inner, name=name, operands=tuple(names[operand] for operand in inner.operands))
    return names[callee.root]


def _element(kept: dict[str, Instruction], instruction: Instruction) -> str:
    """The name of an element of what a call gives."""
    whole = kept.get(instruction.operands[0])
    match = INDEX.search(instruction.attributes)
    if whole is not None and whole.code == "tuple" and match:
        return whole.operands[int(match.group(1))]
    kept[instruction.name] = instruction
    return instruction.name
