"""What the kernels of a step take on a device, beside the least that their bytes and operations need. JAX."""

import collections
import glob
import os
import shutil

import jax
from jax.profiler import ProfileData

from npu_shim.pjrt.cost import card_report, cards, hlo, kernels

RUNS = 3
TOP = 10


def of(loaded, folder):
    """Profiles a step.

    Args:
        loaded: a `gpu_steps.OnDevice`.
        folder: for the trace, which is removed.

    Returns:
        Rows of the kernels that lose most against their bounds, TOP at most: kernel, kind, ms a step, ms at least (None
        where the card is not known), MB, GFLOP, op of the script.
    """
    taken = _traced(loaded, folder)
    card = _card()
    module = kernels.Kernels(hlo.parse(loaded.program.compile().as_text()))
    rows = []
    for kernel in module.all:
        seconds = taken.get(kernel.name)
        if seconds:
            operations = sum(count for _, count in kernel.products) * kernel.times
            moved = kernel.bytes * kernel.times / 1e6
            least = 1e3 * card_report.bound([kernel], card)[0] if card else None
            rows.append([kernel.name, kernel.kind, 1e3 * seconds, least, moved, operations / 1e9, kernel.of])
    rows.sort(key=lambda row: (row[3] or 0.0) - row[2])
    return [[round(cell, 4) if isinstance(cell, float) else cell for cell in row] for row in rows[:TOP]]


def _card():
    """The known card that is the default device, None where it is none of them."""
    kind = jax.devices()[0].device_kind
    known = map(cards.card, cards.names())
    return next((card for card in known if card.name in kind or kind in card.name), None)


def _traced(loaded, folder):
    """Name of an instruction -> seconds that it takes in a step."""
    loaded.run()
    shutil.rmtree(folder, ignore_errors=True)
    with jax.profiler.trace(folder):
        for _ in range(RUNS):
            loaded.run()
    (path,) = glob.glob(os.path.join(folder, "**", "*.xplane.pb"), recursive=True)
    taken = collections.Counter()
    for plane in ProfileData.from_file(path).planes:
        for event in (event for line in plane.lines for event in line.events):
            name = dict(event.stats).get("hlo_op")
            if name:
                taken[name] += event.duration_ns / 1e9 / RUNS
    shutil.rmtree(folder)
    return taken
