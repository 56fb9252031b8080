"""Exported steps compiled for cards that are not there, each in a process of an interpreter with JAX's CUDA plugin."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import tempfile
from dataclasses import dataclass, field
from typing import Mapping

from npu_shim.pjrt import manifest, other_python
from npu_shim.pjrt.cost import card_compiler, cards, links
from npu_shim.pjrt.cost.cards import Card
from npu_shim.pjrt.manifest import Manifest
from npu_shim.pjrt.placement import Placement, of_cards
from npu_shim.rewriter.errors import ConfigError

JAX = "NPU_SHIM_JAX"  # environment variable: an interpreter with JAX, where none is given
INSTALL = "install it there with: pip install 'jax[cuda12]', or name another interpreter with --jax or $" + JAX
ONE = of_cards(1)
# what failed -> what is said of it: interpreter, reason
FAILURES = {
    "jax": "'%s' has no JAX, which compiles for a GPU (%s); " + INSTALL,
    "plugin": "'%s' has JAX without its CUDA plugin, which compiles for a GPU (%s); " + INSTALL,
    "target": "the JAX of '%s' takes no such target: %s",
    "compile": "the JAX of '%s' cannot compile the step: %s",
}


@dataclass(frozen=True)
class Compiled:
    """A step as it would run on a card.

    Attributes:
        described: Manifest of the step.
        before: its HLO before optimization, as text.
        after: its HLO as it is scheduled on the card.
        memory: "argument", "output", "alias", "temp": XLA's own figures, bytes.
        jax: the release that compiled it.
        attention: as in `pjrt.program.Program`.
        placement: of how many cards, and what each has of the state.
    """

    described: Manifest
    before: str
    after: str
    memory: Mapping[str, int]
    jax: str
    attention: Mapping[str, str] = field(default_factory=dict)
    placement: Placement = ONE


def interpreter(wanted: str | None = None) -> str:
    """Returns the path of a Python: the wanted one, else that of $NPU_SHIM_JAX, else this one where it has JAX.

    Raises:
        ConfigError: none has.
    """
    chosen = wanted or os.environ.get(JAX)
    if not chosen and importlib.util.find_spec("jaxlib") is None:
        raise ConfigError("cost on a card needs JAX with its CUDA plugin: " + INSTALL.replace(" there", ""))
    return chosen or sys.executable


def compiled(folder: str, card: Card, python: str | None = None, placement: Placement = ONE) -> Compiled:
    """Compiles an exported step for a card, or several that run it together; takes seconds to minutes.

    Args:
        folder: what `npu-shim export` wrote; its values are not needed.
        card: Card.
        python: an interpreter with JAX and its CUDA plugin; default as for `interpreter`.
        placement: of how many such cards, and what each has of the state.

    Raises:
        ConfigError: the folder, the interpreter or the target cannot be used.
    """
    described = manifest.read(folder)
    manifest.program(folder, described, "cuda")
    require_room(described, card, placement)
    python = interpreter(python)
    with tempfile.TemporaryDirectory() as out:
        target = os.path.join(out, "target")
        with open(target, "w", encoding="utf-8") as f:
            f.write(card.target)
        how = links.topology(len(placement.devices)), placement.shard_state
        said = other_python.run(python, card_compiler.__file__, os.path.abspath(folder), target, out, *how)
        try:
            result = json.loads(_text(out, "result.json"))
        except OSError as reason:
            raise ConfigError(FAILURES["compile"] % (python, said)) from reason
        if "failed" in result:
            last = (result["reason"].strip().splitlines() or ["no reason"])[0]
            raise ConfigError(FAILURES[result["failed"]] % (python, last))
        before, after = (_text(out, name) for name in ("before.hlo", "after.hlo"))
        return Compiled(described, before, after, result["memory"], result["jax"], result["attention"], placement)


def require_room(described: Manifest, card: Card, placement: Placement = ONE) -> None:
    """Raises ConfigError where a card has not even memory for what it has of a step's variables."""
    state = sum(map(placement.bytes_of, described.state))
    if state > card.memory:
        larger = [other.key for other in map(cards.card, cards.names()) if other.memory >= state]
        raise ConfigError(
            "the variables alone take %.2f GB, '%s' has %.2f GB: no batch fits; %s" % (
                state / 1e9, card.key, card.memory / 1e9,
                "take a larger card: " + ", ".join(larger) if larger else "no known card is large enough",
            )
        )  # fmt: skip


def _text(folder: str, name: str) -> str:
    with open(os.path.join(folder, name), encoding="utf-8") as f:
        return f.read()
