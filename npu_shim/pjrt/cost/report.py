"""The cost of a step as a value, as text in columns, and as JSON."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Callable, Iterable, Sequence

from npu_shim.pjrt import jax_compat, manifest
from npu_shim.pjrt.cost import counts, hlo, inlining, kernels, live
from npu_shim.pjrt.manifest import Manifest
from npu_shim.pjrt.placement import Placement
from npu_shim.pjrt.program import Program

ROLES = ("parameter", "optimizer", "other")
DTYPES = ("float64", "float32", "bfloat16", "float16")
SCALES = ("", "K", "M", "G", "T", "P")


@dataclass(frozen=True)
class Cost:
    """What one step costs.

    Attributes:
        name: of the column.
        products: dtype -> floating-point operations in matrix products and convolutions.
        other: dtype -> all other floating-point operations.
        state: role ("parameter", "optimizer", "other") -> bytes.
        feeds: bytes.
        activations: bytes of the values alive at once inside the step; an estimate, see `live`.
        temporary: bytes that the compiled program takes besides its arguments and results; None where not compiled.
        moved: bytes that the compiled program reads and writes; None where not compiled.
        compiled_for: what `temporary` and `moved` hold for.
        notes: what could not be counted.
    """

    name: str
    products: dict[str, int]
    other: dict[str, int]
    state: dict[str, int]
    feeds: int
    activations: int
    temporary: int | None = None
    moved: int | None = None
    compiled_for: str = ""
    notes: tuple[str, ...] = field(default=())


def of_text(name: str, text: str, described: Manifest) -> Cost:
    """Returns the Cost of an HLO module's text before optimization and the Manifest of its arguments."""
    module = inlining.inlined(hlo.parse(text))
    counted = counts.count(module)
    state = Counter(dict.fromkeys(ROLES, 0))
    for tensor in described.state:
        state[tensor.role] += tensor.bytes
    return Cost(
        name, dict(counted.products), dict(counted.other), dict(state), sum(t.bytes for t in described.feeds),
        int(live.peak(module, len(described.feeds))), notes=tuple(sorted(counted.notes)),
    )  # fmt: skip


def of_folder(folder: str, device: Any = None, compiled: bool = True) -> Cost:
    """Returns the Cost of an exported step; needs JAX.

    Args:
        folder: what `npu-shim export` wrote; its values are not needed.
        device: "cpu", "cuda" or None for JAX's default: what it is compiled for.
        compiled: False leaves XLA's own figures out, and takes no time to compile.

    Raises:
        ImportError: JAX is not installed.
        ConfigError: the folder cannot be read.
    """
    jax = jax_compat.require()
    described = manifest.read(folder)
    where = jax_compat.device(jax, device)
    code = manifest.program(folder, described, where.platform)
    cost = of_text(os.path.basename(os.path.abspath(folder)), jax_compat.hlo_text(code), described)
    if not compiled:
        return cost
    done = Program(jax, described, code, Placement((where,))).compile()
    launched = kernels.Kernels(hlo.parse(done.as_text()))
    return replace(
        cost, temporary=done.memory_analysis().temp_size_in_bytes, moved=int(kernels.moved(launched.all)),
        compiled_for="%s, JAX %s" % (where.device_kind, jax.__version__),
        notes=tuple(sorted({*cost.notes, *(note for note in launched.notes if note.startswith("a loop"))})),
    )  # fmt: skip


def as_json(costs: Iterable[Cost]) -> list[dict[str, Any]]:
    """Returns the costs as JSON values."""
    return [dict(asdict(cost), notes=list(cost.notes)) for cost in costs]


def as_text(costs: Sequence[Cost]) -> str:
    """Returns the costs side by side, one column each; the ratio to the first column stands in brackets."""
    rows = [("", [cost.name for cost in costs])]
    for title, part in (("products", "products"), ("other", "other")):
        for dtype in DTYPES:
            numbers = [getattr(cost, part).get(dtype, 0) for cost in costs]
            if any(numbers):
                rows.append(("%s in %s" % (title, dtype), [scaled(number, "FLOP") for number in numbers]))
    if any(cost.moved is not None for cost in costs):
        rows.append(compared("bytes moved", [cost.moved for cost in costs]))
    for role, title in zip(ROLES, ("parameters", "optimizer state", "other state")):
        rows.append(compared(title, [cost.state[role] for cost in costs]))
    rows.append(compared("feeds", [cost.feeds for cost in costs]))
    rows.append(compared("activations (estimate)", [cost.activations for cost in costs]))
    if any(cost.temporary is not None for cost in costs):
        rows.append(compared("temporary", [cost.temporary for cost in costs]))
    lines = aligned(rows)
    compiled = sorted({cost.compiled_for for cost in costs if cost.compiled_for})
    lines += ["bytes moved and temporary memory: compiled for %s" % ", ".join(compiled)] if compiled else []
    lines += ["note: %s" % note for note in sorted({note for cost in costs for note in cost.notes})]
    return "\n".join(lines) + "\n"


def compared(title: str, numbers: Sequence[Any], said: Callable[[Any], str] | None = None) -> tuple[str, list[str]]:
    """Returns a row: its title, and the numbers with the ratio to the first one behind all others."""
    first = numbers[0]
    cells = []
    for at, number in enumerate(numbers):
        ratio = " (%.2fx)" % (number / first) if at and first and number is not None else ""
        cells.append("-" if number is None else (said(number) if said else scaled(number, "B")) + ratio)
    return title, cells


def aligned(rows: Sequence[tuple[str, Sequence[str]]]) -> list[str]:
    """Returns rows of a title and cells as lines, in columns."""
    widths = [max(len(cells[at]) for _, cells in rows) for at in range(len(rows[0][1]))]
    label = max(len(title) for title, _ in rows)
    return [
        ("%-*s  " % (label, title) + "  ".join("%*s" % pair for pair in zip(widths, cells))).rstrip()
        for title, cells in rows
    ]


def scaled(number: float, unit: str) -> str:
    """3.2e9, "FLOP" -> "3.20 GFLOP"; powers of 1000."""
    power = 0
    while abs(number) >= 1000 and power < len(SCALES) - 1:
        number, power = number / 1000, power + 1
    return "%.*f %s%s" % (2 if power else 0, number, SCALES[power], unit)
