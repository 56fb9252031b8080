"""What a step costs on a card: memory, bytes that kernels move, kernels by kind, a lower bound of its time.

The bound is the sum over all kernels of the longer of two times: its bytes over the card's bandwidth, the operations of
its products over what the card computes in a second. It leaves out what a cache keeps from one kernel to the next, and
the time between kernels.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any, Iterable, Mapping, Sequence

from npu_shim.pjrt.attention.spec import KERNEL
from npu_shim.pjrt.cost import collectives, hlo, kernels, report
from npu_shim.pjrt.cost.cards import UNITS, Card
from npu_shim.pjrt.cost.collectives import Collective
from npu_shim.pjrt.cost.compiling import Compiled
from npu_shim.pjrt.cost.kernels import Kernel
from npu_shim.pjrt.cost.timeline import Timeline


@dataclass(frozen=True)
class CardCost:
    """What one step costs on a card.

    Attributes:
        name: of the column.
        card: the card's key.
        state: bytes of variables, which stay from step to step.
        feeds: bytes.
        temporary: bytes that the step takes while it runs.
        peak: bytes of all at once.
        over: bytes of the peak that the card has no memory for.
        moved: bytes that kernels read and write in a step.
        kernels: kind, see `kernels.ORDER`, to {"kernels": launches in a step, "bytes": that they move}.
        products: units, see `cards.UNITS`, to {"products": in a step, "operations"}.
        converts: conversions between floating-point dtypes, alone or fused into kernels, in a step.
        seconds: lower bound of the step's time.
        by_memory: share of `seconds` in kernels whose bytes take longer than their operations, 0 to 1.
        compiled_by: the release of JAX.
        devices: cards that run the step together; all other figures are those of one.
        exchanged: kind of collective, see `kernels.COLLECTIVES`, to {"collectives", "bytes", "overlap", "sent",
            "seconds"}: how many, the bytes of their results, and how many have products between their start and their
            end; what a card sends over its link in a step, in bytes, and how long that takes at least.
        links: names of the links; "" where the card's file has none, and for one card.
        together: lower bound of the step's time with what the links take, in seconds; None without links.
        notes: what could not be counted.
    """

    name: str
    card: str
    state: int
    feeds: int
    temporary: int
    peak: int
    over: int
    moved: int
    kernels: Mapping[str, Mapping[str, int]]
    products: Mapping[str, Mapping[str, int]]
    converts: int
    seconds: float
    by_memory: float
    compiled_by: str
    devices: int
    exchanged: Mapping[str, Mapping[str, float]]
    links: str = ""
    together: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def efficiency(self) -> float | None:
        """The bound of the step without exchange, as of one card with this batch, as a part of that with it."""
        return self.seconds / self.together if self.together else None


def of_compiled(name: str, compiled: Compiled, card: Card) -> CardCost:
    """Returns the CardCost of a compiled step, under that name."""
    module = hlo.parse(compiled.after)
    program = kernels.Kernels(module)
    products = kernels.products(program.all, card.units)
    memory = compiled.memory
    feeds = sum(map(compiled.placement.bytes_of_feed, compiled.described.feeds))
    peak = memory["argument"] + memory["output"] - memory["alias"] + memory["temp"]
    seconds, by_memory = bound(program.all, card)
    count = len(compiled.placement.devices)
    lasting = {kernel.name: _lasting(kernel, card) for kernel in program.all}
    line = Timeline(module, lasting, card.links, count)
    travels = count > 1 and card.links is not None
    waits = max(0.0, line.seconds - Timeline(module, lasting, None, count).seconds)
    return CardCost(
        name, card.key, memory["argument"] - feeds, feeds, memory["temp"], peak, max(0, peak - card.memory),
        int(kernels.moved(program.all)), _by_kind(program.all),
        {units: {"products": pair[0], "operations": pair[1]} for units, pair in products.items()},
        sum(kernel.converts * kernel.times for kernel in program.all), seconds, by_memory, "JAX " + compiled.jax,
        count, _exchanged(collectives.of(module), line),
        card.links.text(count) if travels and card.links else "", seconds + waits if travels else None,
        tuple(sorted(program.notes | _attention(compiled.attention) | _whole(compiled))),
    )  # fmt: skip


def _whole(compiled: Compiled) -> set[str]:
    """Says where no card has a part of the batch."""
    placement = compiled.placement
    count = len(placement.devices)
    if count == 1 or any(placement.splits(feed.shape) for feed in compiled.described.feeds):
        return set()
    return {"no feed can be split over %d cards: each of them computes the whole step" % count}


def _exchanged(exchanges: Sequence[Collective], line: Timeline) -> dict[str, dict[str, float]]:
    by_kind = ((kind, [one for one in exchanges if one.kind == kind]) for kind in kernels.COLLECTIVES)
    return {
        kind: {
            "collectives": len(several), "bytes": int(sum(one.bytes for one in several)),
            "overlap": sum(one.overlaps > 0 for one in several), "sent": int(line.travelling[kind].sent),
            "seconds": line.travelling[kind].seconds,
        }
        for kind, several in by_kind if several
    }  # fmt: skip


def _attention(said: Mapping[str, str]) -> set[str]:
    """Why an attention has no kernel on the card, a line each."""
    return {"attention stays as the graph has it: %s" % why for why in said.values() if why != KERNEL}


def bound(kernels: Iterable[Kernel], card: Card) -> tuple[float, float]:
    """Returns (seconds that kernels take at least, the share of those whose bytes take longer than their products)."""
    total, by_memory = 0.0, 0.0
    for kernel in kernels:
        moving, lasting = kernel.bytes / card.bandwidth, _lasting(kernel, card)
        total += kernel.times * lasting
        by_memory += kernel.times * moving if moving >= lasting else 0
    return total, by_memory / total if total else 1.0


def _lasting(kernel: Kernel, card: Card) -> float:
    """Seconds that a kernel takes at least, each time."""
    computing = sum(operations / card.peak[card.units(units)] for units, operations in kernel.products)
    return max(kernel.bytes / card.bandwidth, computing)


def _by_kind(executed: Sequence[Kernel]) -> dict[str, dict[str, int]]:
    times: Counter[str] = Counter()
    size: Counter[str] = Counter()
    for kernel in executed:
        times[kernel.kind] += kernel.times
        size[kernel.kind] += int(kernel.bytes * kernel.times)
    return {kind: {"kernels": times[kind], "bytes": size[kind]} for kind in kernels.ORDER if times[kind]}


def as_json(costs: Iterable[CardCost]) -> list[dict[str, Any]]:
    """Returns the costs as JSON values."""
    return [dict(asdict(cost), notes=list(cost.notes)) for cost in costs]


def as_text(card: Card, costs: Sequence[CardCost]) -> str:
    """Returns the costs on a card side by side, one column each; the ratio to the first column stands in brackets."""
    rows = [("", [cost.name for cost in costs])]
    for title, key in (("state", "state"), ("feeds", "feeds"), ("temporary", "temporary"), ("peak", "peak")):
        rows.append(report.compared(title, [getattr(cost, key) for cost in costs]))
    rows.append(("of the card's memory", [_fit(cost, card) for cost in costs]))
    rows.append(report.compared("bytes moved by kernels", [cost.moved for cost in costs]))
    rows += [(title, [_product(cost, units) for cost in costs]) for title, units in _units(costs)]
    rows.append(("kernels", [str(sum(kernel["kernels"] for kernel in cost.kernels.values())) for cost in costs]))
    for kind in kernels.ORDER:
        if any(kind in cost.kernels for cost in costs):
            rows.append(("  " + kind, [_kernel(cost, kind) for cost in costs]))
    for kind in kernels.COLLECTIVES:
        if any(kind in cost.exchanged for cost in costs):
            rows.append((kind, [_exchange(cost, kind) for cost in costs]))
    rows.append(("converts, fused ones too", [str(cost.converts) for cost in costs]))
    rows.append(report.compared("step time at least", [cost.seconds for cost in costs], _milliseconds))
    rows.append(("limited by", [_limit(cost) for cost in costs]))
    if any(cost.links for cost in costs):
        rows.append(("sent over links", [_sent(cost) for cost in costs]))
        rows.append(("step time with that, at least", [_milliseconds(cost.together or cost.seconds) for cost in costs]))
        rows.append(("efficiency", ["%.0f %%" % (100 * (cost.efficiency or 1)) for cost in costs]))
    counts = dict.fromkeys(str(cost.devices) for cost in costs)
    count = "%s of them, figures of one: " % " or ".join(counts) if list(counts) != ["1"] else ""
    lines = ["%s: %s%s, %s, %s" % (
        card.key, count, card.name, report.scaled(card.memory, "B"), report.scaled(card.bandwidth, "B/s")
    ), *report.aligned(rows)]  # fmt: skip
    lines += ["links: %s" % text for text in dict.fromkeys(cost.links for cost in costs if cost.links)]
    lines += ["note: %s" % note for note in sorted({note for cost in costs for note in cost.notes})]
    return "\n".join(lines) + "\n"


def _units(costs: Sequence[CardCost]) -> list[tuple[str, str]]:
    return [("products in " + units, units) for units in UNITS if any(units in cost.products for cost in costs)]


def _product(cost: CardCost, units: str) -> str:
    product = cost.products.get(units)
    return "%d (%s)" % (product["products"], report.scaled(product["operations"], "FLOP")) if product else "-"


def _kernel(cost: CardCost, kind: str) -> str:
    kernel = cost.kernels.get(kind)
    return "%d (%s)" % (kernel["kernels"], report.scaled(kernel["bytes"], "B")) if kernel else "-"


def _exchange(cost: CardCost, kind: str) -> str:
    some = cost.exchanged.get(kind)
    if some is None:
        return "-"
    return "%d (%s), %d overlap products" % (some["collectives"], report.scaled(some["bytes"], "B"), some["overlap"])


def _sent(cost: CardCost) -> str:
    """What a card sends in a step, and how much of the time of that nothing is computed."""
    if not cost.links or cost.together is None:
        return "-"
    sent, seconds = (sum(some[part] for some in cost.exchanged.values()) for part in ("sent", "seconds"))
    words = report.scaled(sent, "B"), _milliseconds(seconds), _milliseconds(cost.together - cost.seconds)
    return "%s in %s, of which %s wait" % words


def _fit(cost: CardCost, card: Card) -> str:
    share = "%.0f %%" % (100 * cost.peak / card.memory)
    return "%s, %s too much" % (share, report.scaled(cost.over, "B")) if cost.over else share


def _milliseconds(seconds: float) -> str:
    return "%.2f ms" % (seconds * 1e3)


def _limit(cost: CardCost) -> str:
    if cost.by_memory >= 0.5:
        return "memory (%.0f %%)" % (100 * cost.by_memory)
    return "operations (%.0f %%)" % (100 * (1 - cost.by_memory))
