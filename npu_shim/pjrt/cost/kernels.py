"""The kernels of a compiled program, with how often each runs: what kind it is, the bytes it moves, its products.

Every instruction of the entry, and of what it calls, is one kernel, but for what only names memory. A loop's body
counts as often as the loop runs, where the program tells; of a conditional the branch counts that moves most.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import Callable, Iterator, Mapping, Sequence

from npu_shim.pjrt.attention.spec import PREFIX
from npu_shim.pjrt.cost import counts, hlo, traffic, trips
from npu_shim.pjrt.cost.hlo import Computation, Instruction, Module, Shape

FREE = {
    "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "partition-id", "replica-id",
    "optimization-barrier",
}  # fmt: skip
# what several devices exchange: `collectives` counts it
COLLECTIVES = (
    "all-reduce", "reduce-scatter", "all-gather", "all-to-all", "collective-permute", "ragged-all-to-all",
)  # fmt: skip
NO_KERNELS = FREE.union(COLLECTIVES)
INNER = FREE | {"reshape", "broadcast", "iota", "slice"}  # in a fusion they are no work of their own
PRODUCTS = {"dot": "matrix products", "convolution": "convolutions"}
# kind of a fusion by the first of these that is in it
KINDS = (
    *((kind, {code}) for code, kind in PRODUCTS.items()), ("sorts", {"sort"}), ("scatters", {"scatter"}),
    ("reductions", {"reduce", "reduce-window", "select-and-scatter"}), ("random", {"rng-bit-generator", "rng"}),
    ("copies, transposes", {"transpose", "copy"}),
)  # fmt: skip
ATTENTION, CONVERTS, ELEMENTWISE, FILLS, OTHERS = "attention", "converts", "elementwise", "fills", "other calls"
ORDER = (ATTENTION, *(kind for kind, _ in KINDS), CONVERTS, ELEMENTWISE, FILLS, OTHERS)
LIBRARIES = {"__cublas": "matrix products", "__cudnn$conv": "convolutions", "__cub$": "sorts", PREFIX: ATTENTION}
TRITON = "__gpu$xla.gpu.triton"  # calls of it have a name of their own
# what cuDNN's names say of a convolution: which of (first operand, second, result) are its image, kernel and result
CONVOLUTIONS = {"BackwardInput": (2, 1, 0), "BackwardFilter": (0, 2, 1), "": (0, 1, 2)}
HIGHEST = re.compile(r"operand_precision\"?[=:][\[{]\"?highest", re.IGNORECASE)  # HLO's spelling, and the libraries'
Scope = Mapping[str, Instruction]


@dataclass(frozen=True)
class Kernel:
    """One kernel.

    Attributes:
        kind: one of `ORDER`.
        bytes: that it reads and writes each time.
        products: (units of `cards.UNITS`, operations) of its matrix products and convolutions, each time.
        converts: conversions between floating-point dtypes in it.
        times: how often it runs in a step.
        name: of its instruction, as a profile of the program names it.
        of: what it computes, in the words of the program that was compiled.
    """

    kind: str
    bytes: float
    products: tuple[tuple[str, int], ...]
    converts: int
    times: int
    name: str = ""
    of: str = ""


class Kernels:
    """The kernels of a module; `notes` says what could not be counted.

    Attributes:
        all: list of Kernel.
        notes: set of str.
    """

    def __init__(self, module: Module) -> None:
        self.notes: set[str] = set()
        self._module = module
        self.all = list(self._of(module.computations[module.entry], 1))

    def _of(self, computation: Computation, times: int) -> Iterator[Kernel]:
        for instruction in computation.instructions.values():
            if _awaited(instruction).code in NO_KERNELS or instruction.code.endswith("-done"):
                continue
            if instruction.code == "while":
                yield from self._loop(computation, instruction, times)
            elif instruction.code == "conditional":
                branches = [list(self._named(name, times)) for part in instruction.called.values() for name in part]
                yield from max(branches, key=moved)
            elif instruction.code in ("call", "async-start"):
                yield from (inner for part in instruction.called.values() for inner in self._named(part[0], times))
            else:
                yield self._kernel(computation, instruction, times)

    def _named(self, name: str, times: int) -> Iterator[Kernel]:
        return self._of(self._module.computations[name], times)

    def _loop(self, computation: Computation, instruction: Instruction, times: int) -> Iterator[Kernel]:
        steps = trips.steps(self._module, computation.name, instruction)
        if steps is None:
            self.notes.add("a loop whose number of steps is not in the program is counted as one step")
        for kind in ("body", "condition"):
            yield from self._named(instruction.called[kind][0], times * (1 if steps is None else steps))

    def _kernel(self, computation: Computation, instruction: Instruction, times: int) -> Kernel:
        instruction = _awaited(instruction)
        inside = _inside(self._module, computation, instruction)
        targets = _targets(inside)
        kind = _kind({inner.code for _, inner in inside}, targets)
        if kind == OTHERS:
            self.notes.add("operations of %s are not counted, its bytes are" % targets[0])
        return Kernel(
            kind,
            traffic.moved(self._module, computation.instructions, instruction),
            tuple(product for product in (_product(scope, inner) for scope, inner in inside) if product),
            sum(_converts(scope, inner) for scope, inner in inside),
            times,
            instruction.name,
            hlo.origin(instruction),
        )


def computes_product(module: Module, computation: Computation, instruction: Instruction) -> bool:
    """Whether a kernel computes matrix products, convolutions or attention."""
    inside = _inside(module, computation, instruction)
    return _kind({inner.code for _, inner in inside}, _targets(inside)) in (ATTENTION, *PRODUCTS.values())


def moved(kernels: Sequence[Kernel]) -> float:
    """Returns the bytes that kernels read and write in a step."""
    return sum(kernel.bytes * kernel.times for kernel in kernels)


def products(kernels: Sequence[Kernel], computed_in: Callable[[str], str] = str) -> dict[str, tuple[int, int]]:
    """Returns units -> (products in a step, their operations); `computed_in` says what a card has for units."""
    number: Counter[str] = Counter()
    operations: Counter[str] = Counter()
    for kernel in kernels:
        for wanted, count in kernel.products:
            units = computed_in(wanted)
            number[units] += kernel.times
            operations[units] += count * kernel.times
    return {units: (number[units], operations[units]) for units in number}


def _inside(module: Module, computation: Computation, instruction: Instruction) -> list[tuple[Scope, Instruction]]:
    """The instructions of a kernel, each with those it stands among."""
    return list(_deep(module, traffic.body(module, computation.instructions, instruction)[0]))


def _targets(inside: Sequence[tuple[Scope, Instruction]]) -> list[str]:
    return [_target(inner) for _, inner in inside if inner.code == "custom-call"]


def _awaited(instruction: Instruction) -> Instruction:
    """A kernel that is started here and awaited later (fusion-start, copy-start), as one."""
    if not instruction.code.endswith("-start"):
        return instruction
    return replace(instruction, code=instruction.code[: -len("-start")], shapes=instruction.shapes[:1])


def _deep(module: Module, inside: Scope) -> Iterator[tuple[Scope, Instruction]]:
    """The instructions of a kernel, each with those it stands among; Triton's fusions have fusions in them."""
    for instruction in inside.values():
        yield inside, instruction
        if instruction.code == "fusion" and "calls" in instruction.called:
            yield from _deep(module, module.computations[instruction.called["calls"][0]].instructions)


def _converts(scope: Scope, instruction: Instruction) -> bool:
    if instruction.code != "convert":
        return False
    return {instruction.shapes[0].dtype, scope[instruction.operands[0]].shapes[0].dtype} <= set(counts.FLOATS)


def _product(scope: Scope, instruction: Instruction) -> tuple[str, int] | None:
    """(units, operations) of a matrix product or a convolution, None for anything else."""
    if instruction.code not in (*PRODUCTS, "custom-call"):
        return None
    target = _target(instruction) if instruction.code == "custom-call" else ""
    kind = PRODUCTS.get(instruction.code) or _library(target)
    if kind not in (ATTENTION, *PRODUCTS.values()) or instruction.shapes[0].dtype not in counts.FLOATS:
        return None
    left, right = (scope[name].shapes[0] for name in instruction.operands[:2])
    if kind == ATTENTION:
        values = scope[instruction.operands[2]].shapes[0]
        operations = counts.attention(target[len(PREFIX) :], left, right, values)
    elif kind == "convolutions":
        image, kernel, result = _roles(target, left, right, instruction.shapes[0])
        operations = counts.convolution(instruction.attributes, image, kernel, result)
    else:
        operations = counts.dot(instruction.attributes, left, right, instruction.shapes[0])
    units = counts.FLOATS.get(left.dtype, "float32")
    return ("tf32" if units == "float32" and not HIGHEST.search(instruction.attributes) else units), operations


def _roles(target: str, *arrays: Shape) -> Iterator[Shape]:
    """Puts what cuDNN's call takes and gives in the convolution's own order: image, kernel, result."""
    order = next(order for name, order in CONVOLUTIONS.items() if name in target)
    return (arrays[at] for at in order)


def _kind(codes: set[str], targets: Sequence[str]) -> str:
    if targets:
        return _library(targets[0]) or OTHERS
    for kind, wanted in KINDS:
        if codes & wanted:
            return kind
    work = codes - INNER
    return ELEMENTWISE if work - {"convert"} else (CONVERTS if work else FILLS)


def _library(target: str) -> str:
    return next((kind for start, kind in LIBRARIES.items() if target.startswith(start)), "")


def _target(instruction: Instruction) -> str:
    match = re.search(r'custom_call_target="([^"]*)"', instruction.attributes)
    if match and match.group(1) == TRITON:
        match = re.search(r'[{ ]name = "([^"]*)"', instruction.attributes) or match
    return match.group(1) if match else "a call"
