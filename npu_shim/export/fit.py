"""The largest batch of a graph's step that fits on a card, as written and in other forms."""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass
from typing import Any, Callable, Mapping, Sequence

from npu_shim.export import cost
from npu_shim.pjrt.cost import card_report, compiling, report
from npu_shim.pjrt.cost.card_report import CardCost
from npu_shim.pjrt.cost.cards import Card
from npu_shim.pjrt.cost.largest import MOST, largest
from npu_shim.rewriter.errors import ConfigError, PlanError

FIRST = 8  # batch that is tried first
# what is compared where no options are given
FORMS = {
    "as written": cost.AS_WRITTEN,
    "allow_mix_precision": {"precision_mode": "allow_mix_precision"},
    "allow_mix_precision_bf16": {"precision_mode": "allow_mix_precision_bf16"},
    "allow_mix_precision, recompute memory": {"precision_mode": "allow_mix_precision", "recompute": "memory"},
}


@dataclass(frozen=True)
class Fit:
    """The largest batch of one form.

    Attributes:
        name: of the form.
        batch: that fits; 0 where none does.
        cost: CardCost of that batch; None where none fits.
        tried: batches that were compiled.
    """

    name: str
    batch: int
    cost: CardCost | None
    tried: tuple[int, ...]


def of_graph(
    source: Any,
    fetches: Any,
    feeds_of: Callable[[int], Mapping[str, Any]],
    forms: Mapping[str, Mapping[str, Any]],
    card: Card,
    python: str | None = None,
    first: int = FIRST,
    progress: Callable[[str], None] = lambda line: None,
    **given: Any
) -> list[Fit]:
    """Returns a Fit for each form; takes a few compilations each.

    Args:
        source: a `sources.Source`.
        fetches: as for `step_function.prepare`.
        feeds_of: batch -> feeds with their shapes.
        forms: name -> precision options.
        card: Card.
        python: an interpreter with JAX and its CUDA plugin; default as for `compiling.interpreter`.
        first: batch that is tried first.
        progress: is told in a line what a batch takes.
        **given: as for `cost.of_graph`.

    Raises:
        ConfigError: no feed grows with the batch, or the card cannot hold the variables alone.
        PlanError: the graph cannot be compiled for other batches than its own.
    """
    one, two = feeds_of(1), feeds_of(2)
    if one == two:
        shapes = ", ".join("'%s' %s" % (name, list(shape)) for name, shape in one.items())
        raise ConfigError(
            "the batch cannot be varied: no feed has an open first dimension (%s); build the graph with None" % shapes
        )
    fits: list[Fit] = []
    for name, options in forms.items():
        costs_of: dict[int, CardCost] = {}

        def peak(
            batch: int, name: str = name, options: Mapping[str, Any] = options, costs: dict[int, CardCost] = costs_of
        ) -> int:
            begin = time.perf_counter()
            costs[batch] = _cost(name, source, fetches, feeds_of(batch), dict(given, **options), card, python)
            progress(_line(costs[batch], batch, card, time.perf_counter() - begin))
            return costs[batch].peak

        batch = largest(peak, card.memory, first)
        fits.append(Fit(name, batch, costs_of.get(batch), tuple(costs_of)))
        first = max(batch, 1)  # the next form is not far
    return fits


def _line(cost: CardCost, batch: int, card: Card, seconds: float) -> str:
    fits = "fits" if cost.peak <= card.memory else "does not fit"
    sizes = report.scaled(cost.peak, "B"), report.scaled(card.memory, "B")
    return "%s: batch %d takes %s of %s, %s (%.0f s)" % (cost.name, batch, *sizes, fits, seconds)


def _cost(
    name: str, source: Any, fetches: Any, feeds: Any, given: Mapping[str, Any], card: Card, python: str | None
) -> CardCost:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "step")
        try:
            cost.write_form(path, source, fetches, feeds, jax=python, **given)
        except PlanError as reason:
            raise PlanError("with feeds %s: %s" % (feeds, reason)) from reason
        return card_report.of_compiled(name, compiling.compiled(path, card, python), card)


def as_text(card: Card, fits: Sequence[Fit]) -> str:
    """Returns the largest batches side by side, with what a step of them costs."""
    costs = [fit.cost for fit in fits]
    rows = [("", [fit.name for fit in fits]), report.compared("largest batch", [fit.batch for fit in fits], _batch)]
    for title, key in (("peak", "peak"), ("state", "state"), ("temporary", "temporary")):
        rows.append(report.compared(title, [cost and getattr(cost, key) for cost in costs]))
    for title, key, said in (("bytes moved a sample", "moved", None), ("time a sample at least", "seconds", _time)):
        rows.append(report.compared(title, [f.cost and getattr(f.cost, key) / f.batch for f in fits], said))
    head = "%s: %s, %s" % (card.key, card.name, report.scaled(card.memory, "B"))
    return "\n".join([head, *report.aligned(rows)]) + "\n"


def _batch(batch: int) -> str:
    return "%d or more" % batch if batch >= MOST else str(batch or "none")


def _time(seconds: float) -> str:
    return "%.3f ms" % (seconds * 1e3)


def as_json(fits: Sequence[Fit]) -> list[dict[str, Any]]:
    """Returns the fits as JSON values."""
    return [
        {"name": fit.name, "batch": fit.batch, "tried": list(fit.tried),
         "cost": card_report.as_json([fit.cost])[0] if fit.cost else None}
        for fit in fits
    ]  # fmt: skip
