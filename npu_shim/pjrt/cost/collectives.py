"""What devices exchange in a step of a compiled program: which collectives, how many bytes, and which overlap.

A collective overlaps where the schedule has matrix products or convolutions between its start and its end: they compute
while it travels. Bytes are those of its result on one device.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Iterator

from npu_shim.pjrt.cost import hlo, kernels
from npu_shim.pjrt.cost.hlo import Computation, Instruction, Module

CALLS = ("fusion", "custom-call", *kernels.PRODUCTS)
START, DONE = "-start", "-done"


@dataclass(frozen=True)
class Collective:
    """One exchange.

    Attributes:
        kind: one of `kernels.COLLECTIVES`.
        bytes: of its result on one device.
        overlaps: products between its start and its end.
        op: the op that it comes of, as the program names it, "" where it names none.
    """

    kind: str
    bytes: float
    overlaps: int
    op: str


def of(module: Module) -> tuple[Collective, ...]:
    """Returns the collectives of a module's computations, in the order of the schedule; a loop's body counts once."""
    return tuple(itertools.chain.from_iterable(_of(module, part) for part in module.computations.values()))


def kind_of(instruction: Instruction) -> str:
    """Returns which of `kernels.COLLECTIVES` an instruction is, or starts; "" for none."""
    kind = instruction.code[: -len(START)] if instruction.code.endswith(START) else instruction.code
    return kind if kind in kernels.COLLECTIVES else ""


def _of(module: Module, computation: Computation) -> Iterator[Collective]:
    instructions = list(computation.instructions.values())
    ends = {instruction.operands[0]: number for number, instruction in enumerate(instructions)
            if instruction.code.endswith(DONE) and instruction.operands}  # fmt: skip
    products = [number for number, one in enumerate(instructions)
                if one.code in CALLS and kernels.computes_product(module, computation, one)]  # fmt: skip
    for number, instruction in enumerate(instructions):
        kind = kind_of(instruction)
        if not kind:
            continue
        end = ends.get(instruction.name, number)
        result = instructions[end]
        between = sum(number < product < end for product in products)
        yield Collective(kind, sum(shape.bytes for shape in result.shapes), between, hlo.origin(instruction))
