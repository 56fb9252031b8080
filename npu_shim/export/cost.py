"""The cost of a step from its graph, float32 as written beside the rewritten step.

Each is written as a program, which JAX compiles for this machine's CPU, or for cards that are not there.
"""

from __future__ import annotations

import os
import tempfile
from typing import Any, Callable, Sequence

from npu_shim.export import step as export
from npu_shim.pjrt import manifest
from npu_shim.pjrt.cost import apart, cards, compiling
from npu_shim.pjrt.cost.cards import Card
from npu_shim.pjrt.cost.on_cards import OnCards, of_folders
from npu_shim.pjrt.cost.report import Cost
from npu_shim.pjrt.manifest import Manifest
from npu_shim.pjrt.placement import Placement
from npu_shim.xla.sources import Source

# arguments that say what the step is, or who makes it
NO_OPTIONS = ("constants", "values", "device", "devices", "float32_products", "jax")
# changes nothing
AS_WRITTEN = {"precision_mode": "must_keep_origin_dtype", "profile": "gpu", "recompute": "off", "attention": "off"}


def of_graph(
    source: Any, fetches: Any, feeds: Any, options: Any, compiled: bool = True, jax: str | None = None, **given: Any
) -> list[Cost]:
    """Returns two Costs: of the step as written and of the step under the options.

    Args:
        source: a `sources.Source`.
        fetches: as for `npu_shim.export.export`.
        feeds: likewise.
        options: precision options, dict.
        compiled: whether to compile for this machine's CPU, for bytes moved and temporary memory.
        jax: as for `export`.
        **given: constants, device and float32_products, as for `export`.

    Raises:
        ConfigError or PlanError: as `export`.
    """
    python = export.interpreter(jax)
    with tempfile.TemporaryDirectory() as folder:
        asked = {**given, **options, "attention": "off", "jax": python}  # a CPU has no kernels for attention
        return apart.of_folders(write_forms(folder, source, fetches, feeds, **asked), "cpu", compiled, python)


def on_cards(
    source: Any,
    fetches: Any,
    feeds: Any,
    targets: Any,
    jax: str | None = None,
    progress: Callable[[str], None] = lambda line: None,
    placement: Placement | Sequence[Placement] = compiling.ONE,
    **given: Any,
) -> OnCards:
    """Returns what the step as written and the step under options cost on cards that need not be here.

    Args:
        source: tf.Session, tf.Graph, tf.GraphDef, or a `sources.Source`; values of variables do not matter.
        fetches: as for `npu_shim.export.export`.
        feeds: likewise.
        targets: names of cards ("h100"), or paths of files that describe some; or `cards.Card`s.
        jax: an interpreter with JAX and its CUDA plugin, which makes the programs too; default as for
            `compiling.interpreter`.
        progress: is told in a line what is done.
        placement: of how many cards of a kind, and what each has of the state, see `pjrt.placement.of_cards`; or
            several, which are compared.
        **given: constants, device, float32_products and precision options, as for `npu_shim.export.export`.

    Raises:
        ConfigError: an argument, a card or the interpreter cannot be used.
        PlanError: the graph cannot be rewritten or compiled as asked.
    """
    wanted = [target if isinstance(target, Card) else cards.card(target) for target in targets]
    python = compiling.interpreter(jax)
    if not isinstance(source, Source):
        source = Source.of(getattr(source, "graph", source))  # a session's variables need no values yet
    with tempfile.TemporaryDirectory() as folder:
        several = [placement] if isinstance(placement, Placement) else placement
        count = min(len(one.devices) for one in several)  # of several numbers one program
        paths = write_forms(folder, source, fetches, feeds, jax=python, devices=count, **given)
        for path in paths[1:]:
            if not manifest.read(path).plan["lowered"]:
                progress("%s lowers nothing of this step; npu-shim plan says why" % os.path.basename(path))
            for line in manifest.read(path).plan["attention"]["stays"].items():
                progress("attention '%s' stays: %s" % line)
        return of_folders(paths, wanted, python, progress, *several)


def write_forms(folder: str, source: Any, fetches: Any, feeds: Any, **given: Any) -> list[str]:
    """Writes the step as written and the step under the options as programs that JAX compiles, without values.

    Args:
        folder: an existing one, in which each gets a folder of the form's name.
        source: as for `of_graph`.
        fetches: likewise.
        feeds: likewise.
        **given: likewise, and the precision options.

    Returns:
        Paths of the two.
    """
    paths = [os.path.join(folder, "as written"), os.path.join(folder, "options")]
    plain = {name: value for name, value in given.items() if name in NO_OPTIONS}
    write_form(paths[0], source, fetches, feeds, **dict(plain, **AS_WRITTEN))
    policy = write_form(paths[1], source, fetches, feeds, **given).plan["policy"]
    os.rename(paths[1], os.path.join(folder, policy))
    return [paths[0], os.path.join(folder, policy)]


def write_form(path: str, source: Any, fetches: Any, feeds: Any, **given: Any) -> Manifest:
    """Writes the step under some options as a program that JAX compiles, without values; arguments as for `of_graph`.

    Args:
        path: of a folder that does not exist.
        source: as for `of_graph`.
        fetches: likewise.
        feeds: likewise.
        **given: likewise, and the precision options.

    Returns:
        What was written.
    """
    program = export.program(source, fetches, feeds, **given)
    return manifest.write(path, program.artifacts, program.manifest)
