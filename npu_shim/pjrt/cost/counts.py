"""Counts floating-point operations of an HLO module by dtype, before any optimization, so independent of the device.

A product is a dot or a convolution; a multiply and an add count as two operations. Other arithmetic counts one an
element of the result, a reduction one an element that goes in. The definitions are those of XLA's HloCostAnalysis.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Mapping, Sequence

from npu_shim.pjrt.cost import trips
from npu_shim.pjrt.cost.hlo import Computation, Instruction, Module, Shape

ARITHMETIC = {
    "add", "subtract", "multiply", "divide", "maximum", "minimum", "power", "exponential", "exponential-minus-one",
    "log", "log-plus-one", "tanh", "logistic", "sqrt", "rsqrt", "cbrt", "sine", "cosine", "negate", "abs", "erf",
    "clamp",
}  # fmt: skip
REDUCTIONS = {"reduce", "reduce-window", "select-and-scatter", "scatter"}
CALLS = {"call", "fusion"}
FLOATS = {"f64": "float64", "f32": "float32", "bf16": "bfloat16", "f16": "float16"}
# our kernel (pjrt.attention.kernels) -> products over the width of a head, over that of its values
ATTENTION = {"forward": (1, 1), "backward_queries": (2, 1), "backward_keys": (2, 2), "backward_bias": (1, 1)}
WINDOW = {"size": 1, "stride": 1, "pad": (0, 0), "lhs_dilate": 1, "rhs_dilate": 1}


@dataclass
class Counts:
    """Operations of a computation.

    Attributes:
        products: dtype -> operations of its dots and convolutions.
        other: dtype -> operations of all else.
        notes: what could not be counted.
    """

    products: Counter[str] = field(default_factory=Counter)
    other: Counter[str] = field(default_factory=Counter)
    notes: set[str] = field(default_factory=set)

    def add(self, more: Counts, times: int = 1) -> None:
        """Adds the counts of a computation that runs so many times."""
        for mine, theirs in ((self.products, more.products), (self.other, more.other)):
            for dtype, count in theirs.items():
                mine[dtype] += count * times
        self.notes |= more.notes


def count(module: Module) -> Counts:
    """Returns the Counts of an hlo.Module."""
    return _computation(module, module.entry, {})


def _computation(module: Module, name: str, known: dict[str, Counts]) -> Counts:
    if name not in known:
        computation, total = module.computations[name], Counts()
        for instruction in computation.instructions.values():
            _instruction(module, computation, instruction, total, known)
        known[name] = total
    return known[name]


def _instruction(
    module: Module, computation: Computation, instruction: Instruction, total: Counts, known: dict[str, Counts]
) -> None:
    if instruction.code in ("dot", "convolution"):
        _count_product(computation, instruction, total)
    elif instruction.code == "while":
        _count_loop(module, computation, instruction, total, known)
    elif instruction.code == "conditional":
        branches = [_computation(module, name, known) for names in instruction.called.values() for name in names]
        total.add(max(branches, key=lambda branch: sum((branch.products + branch.other).values())))
    elif instruction.code in CALLS:
        for names in instruction.called.values():
            total.add(_computation(module, names[0], known))
    elif instruction.code == "custom-call":
        target = re.search(r'custom_call_target="([^"]*)"', instruction.attributes)
        total.notes.add("custom call %s is not counted" % (target.group(1) if target else ""))
    elif instruction.code in ARITHMETIC:
        _count_elements(instruction.shapes, total)
    elif instruction.code in REDUCTIONS:
        _count_elements(computation.instructions[instruction.operands[0]].shapes, total)


def _count_elements(shapes: Sequence[Shape], total: Counts) -> None:
    if shapes and shapes[0].dtype in FLOATS:
        total.other[FLOATS[shapes[0].dtype]] += shapes[0].elements


def _count_product(computation: Computation, instruction: Instruction, total: Counts) -> None:
    left, right = (computation.instructions[name].shapes[0] for name in instruction.operands)
    if left.dtype in FLOATS:  # what goes in says which units compute it
        how = dot if instruction.code == "dot" else convolution
        total.products[FLOATS[left.dtype]] += how(instruction.attributes, left, right, instruction.shapes[0])


def _count_loop(
    module: Module, computation: Computation, instruction: Instruction, total: Counts, known: dict[str, Counts]
) -> None:
    steps = trips.steps(module, computation.name, instruction)
    if steps is None:
        total.notes.add("a loop whose number of steps is not in the program is counted as one step")
    for kind in ("body", "condition"):
        total.add(_computation(module, instruction.called[kind][0], known), 1 if steps is None else steps)


def dot(attributes: str, left: Shape, _: Shape, result: Shape) -> int:
    """f32[M,K] x f32[K,N] -> 2*M*N*K."""
    total = 2 * result.elements
    contracted = re.search(r'lhs_contracting_dim(?:s=\{|ensions":\[)([0-9,"]*)[}\]]', attributes)  # HLO's, or cuBLAS's
    for dimension in re.findall(r"\d+", contracted.group(1) if contracted else ""):
        total *= left.sizes[int(dimension)]
    return total


def attention(kernel: str, queries: Shape, keys: Shape, values: Shape) -> int:
    """bf16[B,S,H,D], bf16[B,T,H,D], bf16[B,T,H,E] -> 2*B*H*S*T times D and E, as often as `ATTENTION` says."""
    batch, rows, heads, width = queries.sizes
    of_width, of_values = ATTENTION[kernel]
    return 2 * batch * heads * rows * keys.sizes[1] * (of_width * width + of_values * values.sizes[3])


def convolution(attributes: str, left: Shape, right: Shape, result: Shape) -> int:
    """Twice the products of a real input with a weight: what falls on padding or between dilated inputs is left out."""
    match = re.search(r"dim_labels=(\w+)_(\w+)->(\w+)", attributes)
    if match is None:
        raise ValueError("a convolution of the HLO text has no dim_labels")
    labels = match.groups()
    groups = [_number(key, attributes) for key in ("feature_group_count", "batch_group_count")]
    total = 2 * left.sizes[labels[0].index("f")] // groups[0] * result.sizes[labels[2].index("f")]
    total *= left.sizes[labels[0].index("b")] // groups[1]
    windows = _windows(attributes, len(result.sizes) - 2)
    for at, window in enumerate(windows):
        digit = str(at)
        total *= _valid(
            left.sizes[labels[0].index(digit)], right.sizes[labels[1].index(digit)],
            result.sizes[labels[2].index(digit)], window,
        )  # fmt: skip
    return total


def _valid(given: int, kernel: int, outputs: int, window: Mapping[str, Any]) -> int:
    """Pairs of an output and a weight position that meet a real input, along one dimension."""
    spread = (given - 1) * window["lhs_dilate"] + 1
    pairs = 0
    for weight in range(kernel):
        at = weight * window["rhs_dilate"] - window["pad"][0]
        if window["lhs_dilate"] == 1:  # 0 <= at + output * stride < spread, in one step
            first = max(0, -(at // window["stride"]))
            last = min(outputs - 1, (spread - 1 - at) // window["stride"])
            pairs += max(0, last - first + 1)
        else:
            places = (at + output * window["stride"] for output in range(outputs))
            pairs += sum(0 <= place < spread and place % window["lhs_dilate"] == 0 for place in places)
    return pairs


def _windows(attributes: str, count: int) -> list[dict[str, Any]]:
    """window={size=3x3 stride=2x2 pad=1_1x1_1} -> one dict a dimension."""
    text = re.search(r"window=\{([^}]*)\}", attributes)
    windows = [dict(WINDOW) for _ in range(count)]
    for key, values in (part.split("=") for part in (text.group(1).split() if text else [])):
        for window, value in zip(windows, values.split("x")):
            if key in window:
                window[key] = tuple(int(v) for v in value.split("_")) if key == "pad" else int(value)
    return windows


def _number(key: str, attributes: str, default: int = 1) -> int:
    match = re.search(r"\b%s=(\d+)" % key, attributes)
    return int(match.group(1)) if match else default
