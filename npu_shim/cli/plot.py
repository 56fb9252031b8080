"""npu-shim plot LOGDIR --out FILE.png [--tag PATTERN]...: draws the scalars of TensorBoard's event files."""

from __future__ import annotations

import argparse
import fnmatch
import io
import os
from typing import Any, Dict, Iterator, List, Sequence, Tuple

from npu_shim.cli import pages
from npu_shim.configs import extras
from npu_shim.pjrt import atomic_write
from npu_shim.rewriter.errors import ConfigError, nearest

SUFFIX = ".png"
OURS = "npu_shim/"  # tags of npu_shim_watch, which come first
MOST = 60  # plots in a file
COLUMNS, WIDTH, HEIGHT = 3, 5.0, 3.0  # of plots; of one in inches
NEEDS = "a plot needs the package matplotlib"

Scalars = Dict[str, Dict[str, List[Tuple[int, float]]]]  # tag -> run -> (step, value)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describes the command's arguments."""
    parser.add_argument("folder", metavar="LOGDIR", help="a folder with event files, in it or in folders below it")
    parser.add_argument("--out", metavar="FILE.png", required=True, help="the picture to write")
    parser.add_argument(
        "--tag", metavar="PATTERN", action="append", default=[],
        help="draw the tags that match, such as 'npu_shim/*' or loss; may be given several times; without it all",
    )  # fmt: skip


def main(args: argparse.Namespace) -> int:
    """Draws a plot for each tag with a line for each folder of event files; returns 0."""
    out = pages.checked_file(args.out, "--out", SUFFIX)
    _figure()
    if not os.path.isdir(args.folder):
        raise ConfigError("LOGDIR is '%s', expected a folder with event files" % args.folder)
    scalars = _scalars(args.folder)
    tags = _chosen(sorted(scalars, key=lambda tag: (not tag.startswith(OURS), tag)), args.tag)
    picture = _drawn({tag: scalars[tag] for tag in tags})
    with atomic_write.file(out) as f:
        f.write(picture)
    print("npu-shim: wrote %s, %d plot%s" % (out, len(tags), "" if len(tags) == 1 else "s"))
    return 0


def _chosen(tags: Sequence[str], patterns: Sequence[str]) -> list[str]:
    """The tags that match one of the patterns, all without patterns."""
    for pattern in patterns:
        if not fnmatch.filter(tags, pattern):
            raise ConfigError("--tag: no scalar is called '%s'%s" % (pattern, nearest(pattern, tags)))
    chosen = [tag for tag in tags if not patterns or any(fnmatch.fnmatchcase(tag, pattern) for pattern in patterns)]
    if len(chosen) > MOST:
        raise ConfigError("%d scalars are more than one picture holds (%d): choose some by --tag" % (len(chosen), MOST))
    return chosen


def _scalars(folder: str) -> Scalars:
    """The scalars of all event files in a folder and below.

    Raises:
        ConfigError: there is no event file, or none with a scalar.
    """
    files = sorted(_event_files(folder))
    if not files:
        raise ConfigError("LOGDIR '%s' has no event files (*tfevents*), expected what a FileWriter writes" % folder)
    scalars: Scalars = {}
    for path in files:
        run = os.path.relpath(os.path.dirname(path), folder)
        for tag, step, value in _read(path):
            scalars.setdefault(tag, {}).setdefault(run, []).append((step, value))
    if not scalars:
        raise ConfigError("no event file in LOGDIR '%s' has a scalar that can be read" % folder)
    return scalars


def _event_files(folder: str) -> Iterator[str]:
    for path, _, names in os.walk(folder):
        yield from (os.path.join(path, name) for name in names if "tfevents" in name)


def _read(path: str) -> Iterator[tuple[str, int, float]]:
    """(tag, step, value) of each scalar in an event file, up to what a running script has not written yet."""
    import tensorflow.compat.v1 as tf

    verbosity = tf.logging.get_verbosity()
    tf.logging.set_verbosity(tf.logging.ERROR)  # TensorFlow 2 says that its reader is old
    try:
        for event in tf.train.summary_iterator(path):
            for value in event.summary.value:
                kind = value.WhichOneof("value")
                if kind == "simple_value":
                    yield value.tag, event.step, value.simple_value
                elif kind == "tensor" and value.metadata.plugin_data.plugin_name == "scalars":
                    yield value.tag, event.step, float(tf.make_ndarray(value.tensor))
    except (tf.errors.DataLossError, tf.errors.OutOfRangeError):
        return
    except tf.errors.OpError as reason:
        raise ConfigError("the event file '%s' cannot be read: %s" % (path, reason.message)) from reason
    finally:
        tf.logging.set_verbosity(verbosity)


def _figure() -> Any:
    """Returns matplotlib's Figure, which needs no screen. Raises ConfigError where it is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError as reason:
        raise ConfigError("%s (%s): %s" % (NEEDS, reason, extras.pip_install("plot"))) from reason
    return Figure


def _drawn(scalars: Scalars) -> bytes:
    """A PNG with a plot for each tag."""
    columns = min(COLUMNS, len(scalars))
    rows = -(-len(scalars) // columns)
    figure = _figure()(figsize=(WIDTH * columns, HEIGHT * rows), dpi=100, layout="tight")
    for number, (tag, runs) in enumerate(scalars.items(), 1):
        axes = figure.add_subplot(rows, columns, number)
        for run, points in sorted(runs.items()):
            steps, values = zip(*sorted(points, key=lambda point: point[0]))
            axes.plot(steps, values, label=run, linewidth=1.2, marker="." if len(points) < 30 else None)
        axes.set_title(tag, fontsize=9)
        axes.set_xlabel("step", fontsize=8)
        axes.tick_params(labelsize=8)
        axes.grid(alpha=0.3)
        if len(runs) > 1:
            axes.legend(fontsize=7)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()
