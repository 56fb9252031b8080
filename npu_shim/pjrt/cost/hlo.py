"""Reads the text of an HLO module, as TensorFlow's XLA of 2023 and JAX's of today print it.

    %dot.3 = f32[8,10]{1,0} dot(f32[8,64]{1,0} %x.1, f32[64,10]{1,0} %w.2), lhs_contracting_dims={1}, ...
    dot.3 = f32[8,10]{1,0} dot(x.1, w.2), lhs_contracting_dims={1}, ...

Only what counting needs: names, op codes, shapes, operands, attributes. Source of the grammar: XLA's hlo_parser.cc.
Text, and no HloModuleProto: JAX hands out the bytes of one, has no Python class for it and does not install protobuf.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Mapping, Sequence

from npu_shim.rewriter.graph.walks import reached

SIZES = {
    "pred": 1, "s4": 0.5, "u4": 0.5, "s8": 1, "u8": 1, "s16": 2, "u16": 2, "s32": 4, "u32": 4, "s64": 8, "u64": 8,
    "f8e4m3fn": 1, "f8e5m2": 1, "bf16": 2, "f16": 2, "f32": 4, "f64": 8, "c64": 8, "c128": 16,
}  # fmt: skip
SHAPE = re.compile(r"\b(%s)\[([0-9,]*)\]" % "|".join(sorted(SIZES, key=len, reverse=True)))
COMMENT = re.compile(r"/\*.*?\*/")
HEAD = re.compile(r"^(ENTRY\s+)?%?([\w.-]+)\s.*\{\s*$|^(ENTRY\s+)?%?([\w.-]+)\s*\{\s*$")
NAMED = re.compile(r"^\s*(ROOT\s+)?%?([\w.-]+)\s+=\s+(.*)$")
CODE = re.compile(r"^\s*([a-z][\w-]*)\(")
CALLED = re.compile(r"\b(to_apply|body|condition|calls|branch_computations|true_computation|false_computation|select"
                    r"|scatter)=(\{[^}]*\}|%?[\w.-]+)")


@dataclass(frozen=True)
class Shape:
    """An array's shape: dtype as HLO names it ("f32"), sizes."""

    dtype: str
    sizes: tuple[int, ...]

    @property
    def elements(self) -> int:
        """Number of elements."""
        count = 1
        for size in self.sizes:
            count *= size
        return count

    @property
    def bytes(self) -> float:
        """Bytes of the elements."""
        return self.elements * SIZES[self.dtype]


@dataclass(frozen=True)
class Instruction:
    """One instruction.

    Attributes:
        name: without the percent sign.
        code: "dot", "convolution", ...
        shapes: of the arrays of its result; several for a tuple.
        operands: names, in order.
        attributes: the text behind the operands.
        argument: the text between the operands' parentheses.
        called: kind of call ("body", "to_apply", ...) to names of computations.
    """

    name: str
    code: str
    shapes: tuple[Shape, ...]
    operands: tuple[str, ...]
    attributes: str
    argument: str
    called: dict[str, tuple[str, ...]]

    @property
    def bytes(self) -> float:
        """Bytes of the result."""
        return sum(shape.bytes for shape in self.shapes)


@dataclass(frozen=True)
class Computation:
    """A computation: the instructions that its result needs, operands before what uses them, and the root's name."""

    name: str
    instructions: dict[str, Instruction]
    root: str


@dataclass(frozen=True)
class Module:
    """Computations by name, and the name of the entry."""

    computations: dict[str, Computation]
    entry: str


def origin(instruction: Instruction) -> str:
    """Returns what an instruction comes from: the name of its op in the program that was compiled, "" for none."""
    return instruction.attributes.partition('op_name="')[2].partition('"')[0].rpartition("call_exported/")[2]


def parse(text: str) -> Module:
    """Returns the Module of an HLO text. Raises ValueError when it has no entry computation."""
    computations, entry, name = {}, None, None
    lines: list[str] = []
    for line in COMMENT.sub("", text).splitlines():
        head = HEAD.match(line)
        if head and " = " not in line.split("(", 1)[0]:
            name, lines = head.group(2) or head.group(4), []
            entry = name if line.startswith("ENTRY") else entry
        elif line.strip() == "}" and name is not None:
            computations[name] = _computation(name, lines)
            name = None
        elif name is not None:
            lines.append(line)
    if entry is None:
        raise ValueError("the HLO text has no entry computation")
    return Module(computations, entry)


def _computation(name: str, lines: Sequence[str]) -> Computation:
    instructions, root = {}, ""
    for line in lines:
        match = NAMED.match(line)
        if match:
            instructions[match.group(2)] = _instruction(match.group(2), match.group(3))
            root = match.group(2) if match.group(1) else root
    return Computation(name, _used(instructions, root), root)


def _used(instructions: Mapping[str, Instruction], root: str) -> dict[str, Instruction]:
    """The instructions that the root needs, in their order: the others are not compiled."""
    used = set(reached([root], lambda name: instructions[name].operands))
    return {name: instruction for name, instruction in instructions.items() if name in used}


def _instruction(name: str, text: str) -> Instruction:
    end = _matching(text, 0) + 1 if text.startswith("(") else text.index(" ")
    code = CODE.match(text[end:])
    if code is None:
        raise ValueError("not an HLO instruction: %s" % text[:80])
    start = end + code.end() - 1
    close = _matching(text, start)
    argument, attributes = text[start + 1 : close], text[close + 1 :]
    shapes = tuple(_shape(*match) for match in SHAPE.findall(text[:end]))
    called = {kind: tuple(re.findall(r"[\w.-]+", names)) for kind, names in CALLED.findall(attributes)}
    operands = () if code.group(1) in ("parameter", "constant") else _names(argument)
    return Instruction(name, code.group(1), shapes, operands, attributes, argument, called)


def _shape(dtype: str, sizes: str) -> Shape:
    return Shape(dtype, tuple(int(size) for size in sizes.split(",") if size))


def _names(argument: str) -> tuple[str, ...]:
    """Operand names: "f32[2]{0} %a, (s32[], f32[2]{0}) %t" -> ("a", "t")."""
    names, depth, start = [], 0, 0
    for at, letter in enumerate(argument + ","):
        if letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth -= 1
        elif letter == "," and depth == 0:
            part = argument[start:at].strip()
            if part:
                names.append(part.split(" ")[-1].lstrip("%"))
            start = at + 1
    return tuple(names)


def _matching(text: str, start: int) -> int:
    """Position of the parenthesis that closes the one at `start`."""
    depth, quoted = 0, False
    for at in range(start, len(text)):
        letter = text[at]
        if letter == '"' and text[at - 1] != "\\":
            quoted = not quoted
        elif not quoted and letter == "(":
            depth += 1
        elif not quoted and letter == ")":
            depth -= 1
            if depth == 0:
                return at
    raise ValueError("not an HLO instruction: %s" % text[:80])
