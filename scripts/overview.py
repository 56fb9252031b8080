"""Draws docs/pictures/overview.svg from the code's own pipelines: python scripts/overview.py (needs TensorFlow).

The passes are those of rewriter/rewrite.py, npu_shim/session/pipeline.py and npu_shim/xla/pipeline.py. A test compares
the picture with what this makes.
"""

import pathlib
from typing import Iterable, List, NamedTuple, Tuple
from xml.sax.saxutils import escape

PICTURE = pathlib.Path(__file__).resolve().parents[1] / "docs" / "pictures" / "overview.svg"
WIDTH, MARGIN, GAP, LINE, CHIP = 1000, 16, 30, 17, 24
CHARACTER = 7.2  # pixels: the width of a character of 12 pixels in most fonts
COLORS = {"user": "#e8eaf6", "plan": "#e0f2f1", "session": "#fff3e0", "step": "#f3e5f5"}


class Box(NamedTuple):
    """A part of the picture: its title, lines of text, and groups of passes, each with a title that may be empty."""

    color: str
    title: str
    lines: Tuple[str, ...] = ()
    groups: Tuple[Tuple[str, Tuple[str, ...]], ...] = ()


def boxes() -> Tuple[Box, Box, Box, Box, Box]:
    """Returns what the picture shows: script, options, rewriter, session, compiled step."""
    from npu_shim.rewriter import rewrite
    from npu_shim.session.pipeline import SESSION
    from npu_shim.xla.pipeline import PRUNE

    steps = tuple(step.name for step in rewrite.PRECISION.passes)
    return (
        Box("user", "A TensorFlow 1 script, unmodified", (
            "sess.run, Estimator, Keras; npu_bridge, hccl and horovod (npu_shim/bridge)",
            "the names that TensorFlow, Python and its libraries have moved or removed (npu_shim/compat)")),
        Box("user", "Options", (
            "NpuOptimizer's parameter_map, NPURunConfig, flags of npu-shim, NPU_SHIM_...: a table (npu_shim/options)",
            "become a precision policy, the lists of ops, and dtypes of single nodes")),
        Box("plan", "The rewriter", (
            "takes a graph from Grappler, a compiled step or a file; a decision and a reason for each type (rewriter/)",
        ), (("", steps),)),
        Box("session", "In a session", (
            "npu_shim/session, each pass checked against", "what it promises:"),
            (("", tuple(listed.name for listed in SESSION.passes)),)),
        Box("step", "As a compiled step", ("npu_shim/xla; the rewriter works behind the first pipeline:",),
            (("%s: %s" % (PRUNE.name, PRUNE.purpose), tuple(listed.name for listed in PRUNE.passes)),
             ("for each set of feed shapes", ("attention", "recomputation", "packing")),
             ("interpreted by JAX (npu_shim/step)", ("schedule", "rules", "random", "control_flow", "containers")))),
    )  # fmt: skip


RUNS = {
    "session": ("TensorFlow's kernels", "XLA clusters"),
    "step": ("compile_step and the engine: today's XLA", "export: no TensorFlow"),
}


def rows_of(chips: Iterable[str], width: float) -> List[List[Tuple[float, float, str]]]:
    """Lays chips in rows that are `width` pixels wide: (x, width, text) of each."""
    rows: List[List[Tuple[float, float, str]]] = [[]]
    x = 0.0
    for chip in chips:
        wide = CHARACTER * len(chip) + 14
        if rows[-1] and x + wide > width:
            rows.append([])
            x = 0.0
        rows[-1].append((x, wide, chip))
        x += wide + 8
    return rows


def height(box: Box, width: float) -> float:
    """Returns the pixels that a box needs."""
    titles = sum(LINE + 4 if title else 4 for title, _ in box.groups)
    rows = sum(len(rows_of(chips, width - 32)) for _, chips in box.groups)
    return 44 + LINE * len(box.lines) + titles + (CHIP + 6) * rows


def drawn(box: Box, x: float, y: float, width: float, tall: float) -> Iterable[str]:
    """Yields the elements of a box."""
    shape = '<rect x="%g" y="%g" width="%g" height="%g" rx="8" fill="%s" stroke="#90a4ae"/>'
    yield shape % (x, y, width, tall, COLORS[box.color])
    yield text(x + 16, y + 25, box.title, size=16, weight="bold")
    y += 29
    for line in box.lines:
        y += LINE
        yield text(x + 16, y, line)
    for title, chips in box.groups:
        y += LINE + 4 if title else 4
        if title:
            yield text(x + 16, y, title, weight="bold")
        yield from drawn_chips(chips, x + 16, y, width - 32)
        y += (CHIP + 6) * len(rows_of(chips, width - 32))


def drawn_chips(chips: Iterable[str], x: float, y: float, width: float) -> Iterable[str]:
    """Yields the elements of names in small frames, in rows below y."""
    for row in rows_of(chips, width):
        y += 6
        for left, wide, chip in row:
            form = '<rect x="%g" y="%g" width="%g" height="%g" rx="4" fill="#ffffff" stroke="#b0bec5"/>'
            yield form % (x + left, y, wide, CHIP)
            yield text(x + left + 7, y + 16, chip)
        y += CHIP


def text(x: float, y: float, words: str, size: int = 12, weight: str = "normal") -> str:
    """Returns a line of text."""
    return '<text x="%g" y="%g" font-size="%d" font-weight="%s">%s</text>' % (x, y, size, weight, escape(words))


def arrow(x: float, y: float) -> str:
    """Returns an arrow down through the gap below y."""
    return '<path d="M%g %g v%g" stroke="#546e7a" stroke-width="2" marker-end="url(#head)"/>' % (x, y, GAP - 9)


def svg() -> str:
    """Returns the picture."""
    *stacked, session, step = boxes()
    full = WIDTH - 2 * MARGIN
    elements: List[str] = []
    y = float(MARGIN)
    for box in stacked:
        tall = height(box, full)
        elements += drawn(box, MARGIN, y, full, tall)
        y += tall
        if box is not stacked[-1]:
            elements.append(arrow(WIDTH / 2, y))
            y += GAP
    left = full * 0.36
    columns = ((session, MARGIN, left), (step, MARGIN + left + 16, full - left - 16))
    elements += [arrow(x + width / 2, y) for _, x, width in columns]
    y += GAP
    tall = max(height(box, width) for box, _, width in columns)
    for box, x, width in columns:
        elements += drawn(box, x, y, width, tall)
        elements.append(arrow(x + width / 2, y + tall))
        elements += drawn_chips(RUNS[box.color], x, y + tall + GAP - 6, width)
    ends = max(len(rows_of(RUNS[box.color], width)) for box, _, width in columns)
    total = y + tall + GAP + (CHIP + 6) * ends + MARGIN
    head = (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" font-family="sans-serif" fill="#263238">\n'
        "<title>From a TensorFlow 1 script to what runs it</title>\n"
        '<defs><marker id="head" markerWidth="8" markerHeight="8" refX="4" refY="4" orient="auto">'
        '<path d="M0 0 L8 4 L0 8 z" fill="#546e7a"/></marker></defs>\n'
        '<rect width="100%%" height="100%%" fill="#ffffff"/>\n'
    )
    return head % (WIDTH, total) + "\n".join(elements) + "\n</svg>\n"


if __name__ == "__main__":
    PICTURE.write_text(svg(), encoding="utf-8")
