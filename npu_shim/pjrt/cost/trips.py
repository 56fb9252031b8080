"""How often a loop of an HLO module runs: its scalar integers are computed, all else is unknown.

    while (i < 16 and j < n): i starts at 0, n comes from a constant -> 16 steps

Conditions that depend on anything that is fed, or on state, stay unknown.
"""

from __future__ import annotations

import operator
import re
from typing import Any, Callable, Sequence

from npu_shim.pjrt.cost.hlo import Instruction, Module

MOST = 100000  # steps of a loop that are followed
SCALAR: dict[str, Callable[..., Any]] = {
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "minimum": min, "maximum": max,
    "and": operator.and_, "or": operator.or_, "not": lambda a: not a, "negate": operator.neg,
}  # fmt: skip
COMPARED = {
    "EQ": operator.eq, "NE": operator.ne, "LT": operator.lt, "LE": operator.le, "GT": operator.gt, "GE": operator.ge,
}  # fmt: skip
SAME = {"copy", "convert", "reshape", "bitcast", "bitcast-convert"}
CALLS = {"call": "to_apply", "fusion": "calls"}
LITERALS = {"true": True, "false": False}


class Frame:
    """The values of one computation for given arguments: an int, a bool, a tuple of values, or None for unknown."""

    def __init__(self, module: Module, name: str, arguments: Sequence[Any] = ()) -> None:
        self.module = module
        self.computation = module.computations[name]
        self.arguments = arguments
        self.known: dict[str, Any] = {}

    def root(self) -> Any:
        """Returns the value of the computation."""
        return self.value(self.computation.root)

    def value(self, name: str) -> Any:
        """Returns the value of an instruction."""
        if name not in self.known:
            self.known[name] = self._compute(self.computation.instructions[name])
        return self.known[name]

    def _compute(self, instruction: Instruction) -> Any:
        code = instruction.code
        if code == "while":
            return self.loop(instruction)[0]
        if code == "tuple":
            return tuple(self.value(name) for name in instruction.operands)
        if code == "get-tuple-element":
            whole = self.value(instruction.operands[0])
            return whole and whole[int(_attribute(r"index=(\d+)", instruction))]
        if code == "parameter":
            position = int(instruction.argument)
            return self.arguments[position] if position < len(self.arguments) else None
        if code in CALLS and not (instruction.shapes and instruction.shapes[0].sizes):
            given = tuple(self.value(name) for name in instruction.operands)
            return Frame(self.module, instruction.called[CALLS[code]][0], given).root()
        return self._scalar(instruction)

    def _scalar(self, instruction: Instruction) -> Any:
        if len(instruction.shapes) != 1 or instruction.shapes[0].sizes or instruction.shapes[0].dtype[0] not in "psu":
            return None
        if instruction.code == "constant":
            text = instruction.argument
            return int(text) if re.match(r"^-?\d+$", text) else LITERALS.get(text)
        values = [self.value(name) for name in instruction.operands]
        if not values or None in values:
            return None
        if instruction.code == "compare":
            return COMPARED[_attribute(r"direction=(\w\w)", instruction)](*values)
        if instruction.code in SAME:
            return values[0]
        return SCALAR[instruction.code](*values) if instruction.code in SCALAR else None

    def loop(self, instruction: Instruction) -> tuple[Any, int | None]:
        """Returns (the value that a while instruction ends with, its number of steps); (None, None) where unknown."""
        state = self.value(instruction.operands[0])
        for step in range(MOST):
            more = Frame(self.module, instruction.called["condition"][0], (state,)).root()
            if more is None or state is None:
                break
            if not more:
                return state, step
            state = Frame(self.module, instruction.called["body"][0], (state,)).root()
        return None, None


def steps(module: Module, computation: str, instruction: Instruction) -> int | None:
    """Returns how often a while instruction of that computation runs its body; None where the program does not tell."""
    told = re.search(r'"known_trip_count":\{"n":"(\d+)"', instruction.attributes)  # by XLA, in a compiled program
    return int(told.group(1)) if told else Frame(module, computation).loop(instruction)[1]


def _attribute(pattern: str, instruction: Instruction) -> str:
    match = re.search(pattern, instruction.attributes)
    if match is None:
        raise ValueError("'%s' of the HLO text lacks %s" % (instruction.name, pattern))
    return match.group(1)
