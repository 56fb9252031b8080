"""Estimates the memory of a step's live values from its HLO before optimization, independent of the device.

Inputs and results of products, reductions, loops and the like are assumed to be in memory; elementwise ops between them
are assumed to be fused into their consumers. A value lives from the level of its producer (the longest path from the
arguments) to the last level that reads it, also through fused ops. The estimate is the maximum over all levels. A value
that depends on variables alone (a weight's cast) is made when it is first read.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Mapping

from npu_shim.pjrt.cost.hlo import Instruction, Module

STANDS = {
    "dot", "convolution", "reduce", "reduce-window", "select-and-scatter", "scatter", "gather", "sort", "while",
    "conditional", "custom-call", "rng", "rng-bit-generator", "fft", "cholesky", "triangular-solve", "call",
}  # fmt: skip
READS_MEMORY = ("dot", "convolution")  # their operands stand in memory as they are, casts included
GIVEN = {"parameter", "constant", "iota", "tuple", "get-tuple-element"}


def peak(module: Module, feeds: int) -> float:
    """Returns the most bytes of values that are alive at one level of the entry computation.

    Args:
        module: hlo.Module.
        feeds: number of arguments, the first ones, that are fed; the others are state.
    """
    computation = module.computations[module.entry]
    instructions = {n: i for n, i in computation.instructions.items() if n != computation.root}
    stands = _standing(instructions)
    level: dict[str, int] = {}
    on_feeds: dict[str, bool] = {}
    for name, instruction in instructions.items():
        inputs = [operand for operand in instruction.operands if operand in level]
        level[name] = max((level[operand] for operand in inputs), default=0) + (name in stands)
        on_feeds[name] = any(on_feeds[operand] for operand in inputs) or _is_fed(instruction, feeds)
    first, last = _reads(instructions, stands, level, computation.instructions[computation.root].operands)
    change: dict[int, float] = defaultdict(float)
    for name in stands:
        begins = level[name] if on_feeds[name] else first.get(name, level[name])
        change[begins] += instructions[name].bytes
        change[max(last.get(name, 0), begins) + 1] -= instructions[name].bytes
    most: float = 0
    now: float = 0
    for at in sorted(change):
        now += change[at]
        most = max(most, now)
    return most


def _is_fed(instruction: Instruction, feeds: int) -> bool:
    return instruction.code == "parameter" and int(instruction.argument) < feeds


def _standing(instructions: Mapping[str, Instruction]) -> set[str]:
    stands = {name for name, instruction in instructions.items() if instruction.code in STANDS}
    for instruction in instructions.values():
        if instruction.code in READS_MEMORY:
            for name in instruction.operands:
                source = _through(instructions, name)
                if source in instructions and instructions[source].code not in GIVEN:
                    stands.add(source)
    return stands


def _through(instructions: Mapping[str, Instruction], name: str) -> str:
    """What a value is a view of: reshapes and the like take no memory of their own."""
    while name in instructions and instructions[name].code in ("reshape", "bitcast", "copy"):
        name = instructions[name].operands[0]
    return name


def _reads(
    instructions: Mapping[str, Instruction], stands: Any, level: Any, results: Any
) -> tuple[dict[str, int], dict[str, int]]:
    """Returns (first, last): name -> level at which a value is read first and last, also through fused work."""
    readers, written = defaultdict(list), set(results)
    for name, instruction in instructions.items():
        for operand in instruction.operands:
            readers[operand].append(name)
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for name in reversed(list(instructions)):
        at = [level[name]] if name in written else []  # a result is written where it is made
        at += [level[reader] for reader in readers[name] if reader in stands]
        fused = [reader for reader in readers[name] if reader not in stands and reader in last]
        if at or fused:
            first[name] = min(at + [first[reader] for reader in fused])
            last[name] = max(at + [last[reader] for reader in fused])
    return first, last
