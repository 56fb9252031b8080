"""Exported steps on cards: each compiled for each, beside what holds for all devices."""

from __future__ import annotations

import os
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any, Callable, Sequence

from npu_shim.pjrt import manifest
from npu_shim.pjrt.cost import card_report, compiling
from npu_shim.pjrt.cost.card_report import CardCost
from npu_shim.pjrt.cost.cards import Card
from npu_shim.pjrt.cost.report import Cost, as_json, as_text, of_text
from npu_shim.pjrt.placement import Placement
from npu_shim.rewriter.errors import ConfigError


@dataclass(frozen=True)
class OnCards:
    """What steps cost: `costs` on any device, and for each card of `cards` what they cost on it."""

    costs: tuple[Cost, ...]
    cards: tuple[tuple[Card, tuple[CardCost, ...]], ...]


def of_folders(
    folders: Sequence[str],
    wanted: Sequence[Card],
    python: str | None = None,
    progress: Callable[[str], None] = lambda line: None,
    *placements: Placement,
) -> OnCards:
    """Compiles exported steps for cards.

    Args:
        folders: what `npu-shim export` wrote; their values are not needed. The first is what others are compared with.
        wanted: the Cards.
        python: an interpreter with JAX and its CUDA plugin; default as for `compiling.interpreter`.
        progress: is told in a line what is done.
        *placements: of how many cards of a kind, and what each has of the state; default: of one. Of several, all are
            compared.

    Raises:
        ConfigError: a folder, the interpreter or a card cannot be used, see `compiling.compiled`.
    """
    twice = [key for key, count in Counter(card.key for card in wanted).items() if count > 1]
    if twice:
        raise ConfigError("two targets are called '%s': name each once, and files otherwise than cards" % twice[0])
    names = _names(folders)
    ways = [(card, placement) for placement in placements or [compiling.ONE] for card in wanted]
    for folder in folders:  # before the first of them takes its minutes
        for way in ways:
            compiling.require_room(manifest.read(folder), *way)
    costs: dict[str, Cost] = {}
    by_card: dict[str, list[CardCost]] = {card.key: [] for card in wanted}
    for name, folder in zip(names, folders):
        for card, placement in ways:
            begin = time.perf_counter()
            compiled = compiling.compiled(folder, card, python, placement)
            column = name if len(placements) < 2 else "%s on %d" % (name, len(placement.devices))
            by_card[card.key].append(card_report.of_compiled(column, compiled, card))
            costs[name] = costs.get(name) or of_text(name, compiled.before, compiled.described)
            progress("%s: compiled for %s in %.0f s" % (column, card.key, time.perf_counter() - begin))
    return OnCards(tuple(costs.values()), tuple((card, tuple(by_card[card.key])) for card in wanted))


def _names(folders: Sequence[str]) -> list[str]:
    """The last parts of paths, as many as tell them apart."""
    parts = [os.path.abspath(folder).split(os.sep) for folder in folders]
    count = 1
    while len({tuple(part[-count:]) for part in parts}) < len(parts) and count < max(map(len, parts)):
        count += 1
    return ["/".join(part[-count:]) for part in parts]


def report(on_cards: OnCards) -> tuple[dict[str, Any], str]:
    """Returns (values for JSON, text in columns)."""
    values = {
        "costs": as_json(on_cards.costs),
        "cards": {card.key: _values(card, costs) for card, costs in on_cards.cards},
    }
    texts = [as_text(on_cards.costs), *(card_report.as_text(*card) for card in on_cards.cards)]
    return values, "\n".join(texts)


def _values(card: Card, costs: Sequence[CardCost]) -> dict[str, Any]:
    return {
        "name": card.name, "source": card.source, "memory": card.memory, "bandwidth": card.bandwidth,
        "peak": dict(card.peak), "steps": card_report.as_json(costs),
    }  # fmt: skip
